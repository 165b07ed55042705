//! Products on the processor's matrix unit (Intel AMX), which accumulates 16 by 16 sums at a time.
//!
//! Its instruction `TDPBF16PS` takes 16 slots of each row and column. The products of lower halves and the products of
//! upper halves are accumulated separately, each from zero and in order by fused multiply-adds. Both sums are added,
//! and their total is added to the tile. Denormals are flushed to zero (Intel, *Intrinsics Guide*, `_tile_dpbf16ps`;
//! the tests check it against that definition).

use super::{Part, SIDE, Update, read, write};
use crate::matrix::MatrixMut;

/// The number of rows and columns of a square of four tiles, which are accumulated together.
const QUAD: usize = 2 * SIDE;

/// The maximum number of column slots that stay in the cache of a core: one megabyte.
const MAX_CACHED_SLOTS: usize = 1 << 18;

/// Returns true if products in bf16 use the processor's matrix unit: the unit is available, and no smaller instruction
/// set was requested.
pub fn is_used() -> bool {
    static FOUND: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| !matches!(crate::requested_instruction_set(), Ok(Some(_))) && unit::is_ready())
}

/// A handle to the processor's matrix unit.
#[derive(Clone, Copy)]
pub(super) struct Unit(());

impl Unit {
    /// Returns the unit if [it is used](is_used).
    pub fn chosen() -> Option<Self> {
        is_used().then_some(Self(()))
    }

    /// Returns the unit; `None` if the processor has none or the system does not grant it.
    #[cfg(test)]
    pub fn new() -> Option<Self> {
        unit::is_ready().then_some(Self(()))
    }

    /// Computes the product of the first lines of both factors, as many as `output` has rows and columns.
    pub fn product(self, output: &mut MatrixMut, update: Update, [left, right]: [Part; 2]) {
        let (rows, columns, steps) = (output.rows(), output.columns(), left.steps());
        assert!(steps <= right.steps(), "the left factor has more blocks than the right one");
        // SAFETY: the unit is ready.
        unsafe { unit::configure() };
        let _release = Release;
        let mut sums = Sums([[0.0; QUAD]; QUAD]);
        // Without a second tile, the first one is computed twice.
        let tiles = |factor: &Part, from: usize, length: usize| {
            let second = if from + SIDE < length { from + SIDE } else { from };
            [from, second].map(|line| factor.blocks(line).as_ptr())
        };
        let mut sum_up = |row: usize, column: usize| {
            let mut part = output.part(row..rows.min(row + QUAD), column..columns.min(column + QUAD));
            let is_result = matches!(update, Update::Set(1.0) | Update::Continue)
                && [part.rows(), part.columns()] == [QUAD; 2];
            let destination =
                if is_result { part.address() } else { (sums.0.as_mut_ptr().cast(), QUAD as isize) };
            if !is_result && update == Update::Continue {
                read(&mut part, &mut sums.0);
            }
            let (lefts, rights) = (tiles(&left, row, rows), tiles(&right, column, columns));
            // SAFETY: the unit is ready, each address has `steps` blocks, as the slices above have, and the destination
            // has room for all four tiles.
            unsafe { unit::sum(lefts, rights, steps, destination, update == Update::Continue) };
            if !is_result {
                write(update, &sums.0, &mut part);
            }
        };
        // The result is written along its rows, which takes half the time of writing along columns. The rows of two
        // tiles then stay in the L1 cache, and the columns in the L2 cache.
        let cached_columns = (MAX_CACHED_SLOTS / (steps * SIDE)).max(1).next_multiple_of(QUAD);
        for first in (0..columns).step_by(cached_columns) {
            for row in (0..rows).step_by(QUAD) {
                let columns = first..columns.min(first + cached_columns);
                columns.step_by(QUAD).for_each(|column| sum_up(row, column));
            }
        }
    }
}

/// Releases the unit's registers on this thread when it is dropped, so that the system need not save them.
struct Release;

impl Drop for Release {
    fn drop(&mut self) {
        // SAFETY: the unit is ready.
        unsafe { unit::release() };
    }
}

/// The sums of four tiles, aligned to cache lines.
#[repr(align(64))]
struct Sums([[f32; QUAD]; QUAD]);

/// Access to the unit on Linux.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod unit {
    use std::arch::{asm, x86_64::__cpuid_count};

    use super::SIDE;

    /// Returns true if the processor has the unit and the system grants it to this process, which must request it
    /// (Linux, Documentation/arch/x86/xstate.rst).
    pub fn is_ready() -> bool {
        static FOUND: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *FOUND.get_or_init(|| {
            const BF16: u32 = 1 << 22;
            const TILES: u32 = 1 << 24;
            const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
            const XFEATURE_XTILEDATA: libc::c_long = 18;
            is_x86_feature_detected!("avx512f")
                && __cpuid_count(7, 0).edx & (BF16 | TILES) == BF16 | TILES
                // SAFETY: the request changes only the permissions of this process.
                && unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) } == 0
        })
    }

    /// The operand of `LDTILECFG`: palette 1, and eight registers of 16 rows of 64 bytes.
    #[repr(C, align(64))]
    struct Configuration {
        palette: u8,
        first_row: u8,
        reserved: [u8; 14],
        bytes: [u16; 16],
        rows: [u8; 16],
    }

    /// Configures the tile registers of this thread.
    ///
    /// # Safety
    /// The unit must be ready.
    pub unsafe fn configure() {
        let mut configuration =
            Configuration { palette: 1, first_row: 0, reserved: [0; 14], bytes: [0; 16], rows: [0; 16] };
        configuration.bytes[..8].fill(4 * SIDE as u16);
        configuration.rows[..8].fill(SIDE as u8);
        // SAFETY: the instruction only reads the configuration.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack, readonly, preserves_flags));
        }
    }

    /// Releases the tile registers of this thread.
    ///
    /// # Safety
    /// The unit must be ready.
    pub unsafe fn release() {
        // SAFETY: the instruction only changes the tile registers.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }

    /// Multiplies 32 rows by 32 columns, each given as two addresses of `steps` blocks. The destination is an address
    /// with a stride between rows. The sums start from zero or, if `accumulates`, from the numbers at that address.
    ///
    /// # Safety
    /// The unit must be configured, each address must hold `steps` blocks, and the destination must have room for 32
    /// rows of 32 numbers.
    pub unsafe fn sum(
        left: [*const f32; 2],
        right: [*const f32; 2],
        steps: usize,
        (destination, stride): (*mut f32, isize),
        accumulates: bool,
    ) {
        // SAFETY: as the caller promises, the tiles may be read and the destination may be written.
        unsafe {
            asm!(
                "test {accumulates:e}, {accumulates:e}",
                "jz 4f",
                "tileloadd tmm0, [{destination} + {stride}]",
                "tileloadd tmm1, [{destination} + {stride} + 64]",
                "tileloadd tmm2, [{below} + {stride}]",
                "tileloadd tmm3, [{below} + {stride} + 64]",
                "jmp 5f",
                "4:",
                "tilezero tmm0; tilezero tmm1; tilezero tmm2; tilezero tmm3",
                "5:",
                "test {steps}, {steps}",
                "jz 3f",
                "2:",
                "tileloadd tmm4, [{left_0} + {line}]",
                "tileloadd tmm6, [{right_0} + {line}]",
                "tileloadd tmm7, [{right_1} + {line}]",
                "tileloadd tmm5, [{left_1} + {line}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {left_0}, {block}",
                "add {left_1}, {block}",
                "add {right_0}, {block}",
                "add {right_1}, {block}",
                "dec {steps}",
                "jnz 2b",
                "3:",
                "tilestored [{destination} + {stride}], tmm0",
                "tilestored [{destination} + {stride} + 64], tmm1",
                "tilestored [{below} + {stride}], tmm2",
                "tilestored [{below} + {stride} + 64], tmm3",
                left_0 = inout(reg) left[0] => _,
                left_1 = inout(reg) left[1] => _,
                right_0 = inout(reg) right[0] => _,
                right_1 = inout(reg) right[1] => _,
                line = in(reg) 4 * SIDE,
                block = const 4 * SIDE * SIDE,
                steps = inout(reg) steps => _,
                accumulates = in(reg) u32::from(accumulates),
                destination = in(reg) destination,
                below = in(reg) destination.wrapping_offset(SIDE as isize * stride),
                stride = in(reg) 4 * stride,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

/// A stub for platforms without the unit.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod unit {
    pub fn is_ready() -> bool {
        false
    }
    pub unsafe fn configure() {}
    pub unsafe fn release() {}
    pub unsafe fn sum(_: [*const f32; 2], _: [*const f32; 2], _: usize, _: (*mut f32, isize), _: bool) {}
}
