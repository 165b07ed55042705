//! All output to the terminal. This module only receives plain values and does not depend on higher modules.
//!
//! | file | content |
//! |---|---|
//! | `output` | the only module that writes to standard output and standard error |
//! | `progress` | progress bars and lines |

mod output;
mod progress;

pub use output::{
    be_quiet, check_written, continue_without_output, error_line, escape_json, exit_at_once,
    hold_standard_output, is_silent, is_terminal_control, mute, print_json, print_json_line, print_text, say,
    show_log, table, unmute, warn, warn_error,
};
pub use progress::{PieceProgress, Progress, ProgressKind, RunStatus, Waiting, bar};
