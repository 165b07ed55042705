//! (draft)
use super::super::matrix::MatrixMut;
use super::Attention;
use super::heads::{Inputs, PieceGradients, PieceSaved};
pub(super) fn serves(_: &Attention) -> bool {
    false
}
pub(super) fn forward(_: &Attention, _: usize, _: &Inputs, _: (&mut MatrixMut, &mut [f32])) {}
pub(super) fn backward(_: &Attention, _: usize, _: &Inputs, _: &PieceSaved, _: PieceGradients) {}
