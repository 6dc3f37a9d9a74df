//! The order of a model's layers as few repeated stretches.

/// The longest pattern that is looked for.
const LONGEST: usize = 8;
/// The most stretches of one kind that are written one after another.
const STRETCHES: usize = 12;

/// Some layers one after another, repeated so many times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The kinds of the layers.
    pub kinds: Vec<usize>,
    /// How many times.
    pub times: u64,
}

/// The layers as pieces: stretches of one kind, or else the shortest pattern that recurs and the
/// layers left behind it. `None` if the order is neither.
pub fn pieces(order: &[usize]) -> Option<Vec<Piece>> {
    let stretches = stretches(order);
    if stretches.len() <= 2 {
        return Some(stretches);
    }
    let recurs = |period: &usize| {
        order.len() >= 2 * period && (*period..order.len()).all(|i| order[i] == order[i - period])
    };
    if let Some(period) = (2..=LONGEST).find(recurs) {
        let rest = order.len() % period;
        let whole = Piece { kinds: order[..period].to_vec(), times: (order.len() / period) as u64 };
        let left = Piece { kinds: order[..rest].to_vec(), times: 1 };
        return Some([whole, left].into_iter().filter(|piece| !piece.kinds.is_empty()).collect());
    }
    (stretches.len() <= STRETCHES).then_some(stretches)
}

/// The stretches of one kind.
fn stretches(order: &[usize]) -> Vec<Piece> {
    let of = |kinds: &[usize]| Piece { kinds: kinds[..1].to_vec(), times: kinds.len() as u64 };
    order.chunk_by(|a, b| a == b).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(order: &[usize]) -> Vec<(Vec<usize>, u64)> {
        let pieces = pieces(order).expect("pieces");
        pieces.into_iter().map(|piece| (piece.kinds, piece.times)).collect()
    }

    #[test]
    fn stretches_stand_as_they_are_and_patterns_are_found() {
        assert_eq!(told(&[0, 0, 0]), [(vec![0], 3)]);
        assert_eq!(told(&[0, 1, 1, 1]), [(vec![0], 1), (vec![1], 3)]);
        assert_eq!(told(&[0, 1, 0, 1, 0, 1]), [(vec![0, 1], 3)]);
        let five_and_one = [0, 0, 1, 0, 0, 1, 0, 0];
        assert_eq!(told(&five_and_one), [(vec![0, 0, 1], 2), (vec![0, 0], 1)]);
        assert_eq!(told(&[0, 1, 1, 0]), [(vec![0], 1), (vec![1], 2), (vec![0], 1)]);
    }
}
