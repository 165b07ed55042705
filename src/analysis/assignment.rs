//! Assignment of rows to columns with the least total cost (Kuhn, 1955, "The Hungarian method"), by shortest augmenting
//! paths in O(n³).

/// Returns a column for each row of a square matrix of finite costs, a different one for each row, with the least sum of
/// their costs.
pub fn assignment(costs: &[Vec<f64>]) -> Vec<usize> {
    let size = costs.len();
    // Rows and columns count from 1; row 0 is none, and column 0 holds the row to be assigned.
    let (mut of_rows, mut of_columns) = (vec![0.0; size + 1], vec![0.0; size + 1]);
    let mut row_at = vec![0; size + 1];
    for row in 1..=size {
        row_at[0] = row;
        let (mut slack, mut before) = (vec![f64::INFINITY; size + 1], vec![0; size + 1]);
        let (mut is_reached, mut column) = (vec![false; size + 1], 0);
        while row_at[column] != 0 {
            is_reached[column] = true;
            let (row, mut step, mut next) = (row_at[column], f64::INFINITY, 0);
            for other in (1..=size).filter(|&other| !is_reached[other]) {
                let reduced = costs[row - 1][other - 1] - of_rows[row] - of_columns[other];
                if reduced < slack[other] {
                    (slack[other], before[other]) = (reduced, column);
                }
                if slack[other] < step {
                    (step, next) = (slack[other], other);
                }
            }
            for other in 0..=size {
                if is_reached[other] {
                    of_rows[row_at[other]] += step;
                    of_columns[other] -= step;
                } else {
                    slack[other] -= step;
                }
            }
            column = next;
        }
        while column != 0 {
            row_at[column] = row_at[before[column]];
            column = before[column];
        }
    }
    let mut assigned = vec![0; size];
    (1..=size).for_each(|column| assigned[row_at[column] - 1] = column - 1);
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the least cost of all assignments of the rows from `row` on to columns that are not `used`.
    fn least(costs: &[Vec<f64>], row: usize, used: &mut Vec<usize>) -> f64 {
        let mut lowest = if row == costs.len() { 0.0 } else { f64::INFINITY };
        for column in (0..costs.len()).filter(|_| row < costs.len()) {
            if !used.contains(&column) {
                used.push(column);
                lowest = lowest.min(costs[row][column] + least(costs, row + 1, used));
                used.pop();
            }
        }
        lowest
    }

    #[test]
    fn assignments_have_the_least_cost_of_all() {
        assert_eq!(assignment(&[]), Vec::<usize>::new());
        // The cheapest column of each row is the same.
        assert_eq!(assignment(&[vec![1.0, 2.0], vec![1.0, 4.0]]), [1, 0]);
        for seed in 0..60 {
            let size = 1 + seed % 6;
            let cost = |row: usize, column: usize| ((seed * 31 + row * 17 + column * 23) % 29) as f64 - 7.0;
            let costs: Vec<Vec<f64>> =
                (0..size).map(|row| (0..size).map(|column| cost(row, column).powi(2)).collect()).collect();
            let found = assignment(&costs);
            let total: f64 = found.iter().enumerate().map(|(row, &column)| costs[row][column]).sum();
            let mut columns = found.clone();
            columns.sort_unstable();
            assert_eq!(columns, Vec::from_iter(0..size));
            assert_eq!(total, least(&costs, 0, &mut Vec::new()), "{costs:?}");
        }
    }
}
