//! A tile of a product in registers: by the processor's instruction, or as it is defined.

use pulp::Simd;

use crate::matmul::Destination;
use crate::matrix::MatrixMut;
use crate::vector::{LANES, Vector, update, vectorized};

/// Rows of a tile in registers.
pub(super) const TILE_ROWS: usize = 6;
/// Columns of a tile in registers, and of a panel.
pub(super) const TILE_COLUMNS: usize = 4 * LANES;

/// What a tile of a result sums up.
pub(super) struct Tile<'a> {
    /// From the first row of the tile on.
    pub left: &'a [f32],
    /// Between rows and between slots of a row.
    pub strides: [usize; 2],
    /// `[pairs, width]`.
    pub panel: &'a [f32],
    /// One to four registers of 16 numbers.
    pub width: usize,
}

/// Calls a function with the rows and registers of a tile as constants.
#[cfg(target_arch = "x86_64")]
macro_rules! with_sizes {
    ($sizes:expr, $call:ident) => {
        with_sizes!($sizes, $call, 1 2 3 4 5 6)
    };
    ($sizes:expr, $call:ident, $($rows:literal)*) => {
        match $sizes {
            $(
                ($rows, 1) => $call!($rows, 1),
                ($rows, 2) => $call!($rows, 2),
                ($rows, 3) => $call!($rows, 3),
                ($rows, 4) => $call!($rows, 4),
            )*
            sizes => unreachable!("a tile of {sizes:?}"),
        }
    };
}

impl Tile<'_> {
    /// `output = scale * sums`, or that added to it.
    pub fn sum_into(&self, output: &mut MatrixMut, destination: Destination, scale: f32) {
        let (rows, columns) = (output.rows(), output.columns());
        #[cfg(target_arch = "x86_64")]
        if has_instruction() && columns == self.width {
            self.check(rows);
            let address = output.address();
            macro_rules! by_instruction {
                // SAFETY: the processor has the instruction, the tile lies within its factors, as checked, and the
                // result within `output`.
                ($rows:literal, $registers:literal) => {
                    unsafe { sum_by_instruction::<$rows, $registers>(self, address, destination, scale) }
                };
            }
            return with_sizes!((rows, self.width / LANES), by_instruction);
        }
        let mut sums = [[0.0; TILE_COLUMNS]; TILE_ROWS];
        self.sum(rows, &mut sums);
        for (row, sums) in (0..rows).zip(&sums) {
            match destination {
                Destination::Overwrite => set(scale, sums, &mut output.row(row)[..columns]),
                Destination::AddTo => add(scale, sums, &mut output.row(row)[..columns]),
            }
        }
    }

    /// The sums of the first `rows` rows.
    fn sum(&self, rows: usize, sums: &mut [[f32; TILE_COLUMNS]; TILE_ROWS]) {
        self.check(rows);
        #[cfg(target_arch = "x86_64")]
        if has_instruction() {
            let address = (sums.as_mut_ptr().cast(), TILE_COLUMNS as isize);
            macro_rules! by_instruction {
                // SAFETY: as above, with a result within `sums`.
                ($rows:literal, $registers:literal) => {
                    unsafe {
                        sum_by_instruction::<$rows, $registers>(self, address, Destination::Overwrite, 1.0)
                    }
                };
            }
            return with_sizes!((rows, self.width / LANES), by_instruction);
        }
        sum_in_registers(rows, self, sums);
    }

    /// Whether so many rows lie within the factors.
    fn check(&self, rows: usize) {
        let pairs = self.panel.len() / self.width;
        assert!(
            (1..=TILE_ROWS).contains(&rows) && self.width.is_multiple_of(LANES) && self.width <= TILE_COLUMNS
        );
        let last = (rows - 1) * self.strides[0] + pairs.saturating_sub(1) * self.strides[1];
        assert!(pairs == 0 || last < self.left.len(), "a tile reaches beyond its factor");
    }
}

/// Whether the processor sums products of bf16.
#[cfg(target_arch = "x86_64")]
fn has_instruction() -> bool {
    static FOUND: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| {
        std::env::var_os(crate::INSTRUCTION_SET_VARIABLE).is_none()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bf16")
    })
}

/// `scale` times the sums of `ROWS` rows of `REGISTERS` registers by `VDPBF16PS`, written to an address with a distance
/// between rows, or added to what is there.
///
/// # Safety
/// The processor must have the instruction, the tile lie within its factors, and the result where it may be written.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn sum_by_instruction<const ROWS: usize, const REGISTERS: usize>(
    tile: &Tile,
    (start, stride): (*mut f32, isize),
    destination: Destination,
    scale: f32,
) {
    use std::arch::x86_64::{
        __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512,
        _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    };
    // SAFETY: both are 64 bytes of bits.
    let slots = |bits: __m512i| unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) };
    let [row_stride, slot_stride] = tile.strides;
    let (left, panel) = (tile.left.as_ptr().cast::<i32>(), tile.panel.as_ptr());
    let mut sums = [[_mm512_setzero_ps(); REGISTERS]; ROWS];
    for pair in 0..tile.panel.len() / (REGISTERS * LANES) {
        // SAFETY: see above.
        unsafe {
            let mut right = [slots(_mm512_set1_epi32(0)); REGISTERS];
            for (register, right) in right.iter_mut().enumerate() {
                *right = slots(_mm512_loadu_si512(panel.add((pair * REGISTERS + register) * LANES).cast()));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let left = slots(_mm512_set1_epi32(*left.add(row * row_stride + pair * slot_stride)));
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = _mm512_dpbf16_ps(*sum, left, right);
                }
            }
        }
    }
    let scale = _mm512_set1_ps(scale);
    for (row, sums) in sums.into_iter().enumerate() {
        for (register, sum) in sums.into_iter().enumerate() {
            // SAFETY: see above.
            unsafe {
                let place = start.offset(row as isize * stride).add(register * LANES);
                let result = match destination {
                    Destination::Overwrite => _mm512_mul_ps(sum, scale),
                    Destination::AddTo => _mm512_fmadd_ps(sum, scale, _mm512_loadu_ps(place)),
                };
                _mm512_storeu_ps(place, result);
            }
        }
    }
}

/// Zero in place of a denormal.
#[inline(always)]
fn flush<S: Simd>(x: Vector<S>) -> Vector<S> {
    x.replace(x.abs().less_than(f32::MIN_POSITIVE), x * 0.0)
}

vectorized! {
    /// [`Tile::sum`] in the registers of any processor.
    pub(super) fn sum_in_registers(simd; rows: usize, tile: &Tile<'_>, sums: &mut [[f32; TILE_COLUMNS]; TILE_ROWS]) {
        let [row_stride, slot_stride] = tile.strides;
        for (row, sums) in sums.iter_mut().enumerate().take(rows) {
            for first in (0..tile.width).step_by(Vector::<S>::LANES) {
                let mut sum = Vector::splat(simd, 0.0);
                for (pair, panel) in tile.panel.chunks_exact(tile.width).enumerate() {
                    let left = tile.left[row * row_stride + pair * slot_stride].to_bits();
                    let right = Vector::load(simd, &panel[first..]);
                    let upper = right.map_bits(|simd, bits| simd.and_u32s(bits, simd.splat_u32s(0xFFFF_0000)));
                    let lower = right.map_bits(|simd, bits| simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(16)));
                    sum = flush(upper.mul_add(f32::from_bits(left & 0xFFFF_0000), sum));
                    sum = flush(lower.mul_add(f32::from_bits(left << 16), sum));
                }
                sum.store(&mut sums[first..]);
            }
        }
    }

    fn set(simd; scale: f32, sums: &[f32], output: &mut [f32]) {
        update(simd, output, [sums], |_, [sum]| sum * scale);
    }

    fn add(simd; scale: f32, sums: &[f32], output: &mut [f32]) {
        update(simd, output, [sums], |x, [sum]| sum.mul_add(scale, x));
    }
}
