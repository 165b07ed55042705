//! Everything that is printed, and nothing that is known above: plain values come in.
//!
//! | file | what it holds |
//! |---|---|
//! | `output` | the only place that writes to standard output and standard error |
//! | `progress` | the bar or the lines that show how far work has got |

mod output;
mod progress;

pub use output::{
    be_quiet, check_written, error_line, hold_standard_output, is_silent, keep_working_unread, mute,
    print_json, print_json_line, print_text, say, show_log, table, unmute, warn, warn_error,
};
pub use progress::{PieceProgress, Progress, ProgressKind, RunStatus, Waiting, bar};
