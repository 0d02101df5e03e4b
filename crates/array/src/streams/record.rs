//! One record in flight.

use std::cell::{Cell, Ref, RefCell};
use std::ops::Range;
use std::rc::Rc;

use base::{Pba, SegmentId, Seq};
use ondisk::Entry;
use rt::Bytes;

use super::{Moving, Piece, StreamId, What};
use crate::fault::Fault;

/// Where a record is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Some column is not written yet.
    Writing,
    /// All columns are.
    Complete,
    /// A member failed it.
    Failed,
    /// Nobody waits for it any more.
    Abandoned,
}

/// One record in flight.
pub struct Record {
    /// Who appends it.
    pub stream: StreamId,
    /// To which segment.
    pub segment: SegmentId,
    /// What it is made of.
    pub made: Made,
    pieces: RefCell<Vec<Piece>>,
    /// The parts of each column.
    columns: RefCell<Vec<Vec<Bytes>>>,
    state: Cell<State>,
}

/// What a record is made of.
pub struct Made {
    /// Its first row.
    pub row: u32,
    /// Its rows.
    pub rows: u32,
    /// The numbers of its entries: the first, and the one behind the last.
    pub seqs: Range<Seq>,
    /// Where its payload goes.
    pub places: Vec<Pba>,
    /// Its entries.
    pub entries: Vec<Entry>,
}

impl Record {
    /// A record of `pieces`, to be written as `columns`.
    pub fn new(
        stream: StreamId,
        segment: SegmentId,
        made: Made,
        pieces: Vec<Piece>,
        columns: Vec<Vec<Bytes>>,
    ) -> Rc<Record> {
        Rc::new(Record {
            stream,
            segment,
            made,
            pieces: RefCell::new(pieces),
            columns: RefCell::new(columns),
            state: Cell::new(State::Writing),
        })
    }

    /// Its pieces; not across an `.await`.
    pub fn pieces(&self) -> Ref<'_, Vec<Piece>> {
        self.pieces.borrow()
    }

    /// Takes its pieces, to answer who waits for them.
    pub fn take_pieces(&self) -> Vec<Piece> {
        self.pieces.take()
    }

    /// Takes the parts of each column, to write them.
    pub fn take_columns(&self) -> Vec<Vec<Bytes>> {
        self.columns.take()
    }

    /// Whether all columns are written.
    pub fn is_complete(&self) -> bool {
        self.state.get() == State::Complete
    }

    /// Its columns are written, or some member failed it. False: it was given up meanwhile.
    pub fn is_written(&self, whole: bool) -> bool {
        let writing = self.writing();
        if writing {
            self.state.set(if whole { State::Complete } else { State::Failed });
        }
        writing
    }

    /// Gives it up; its pieces.
    pub fn give_up(&self) -> Vec<Piece> {
        self.state.set(State::Abandoned);
        self.pieces.take()
    }

    /// Whether a column is still being written.
    pub fn writing(&self) -> bool {
        self.state.get() == State::Writing
    }

    /// Gives it up, and answers who waits with `fault`.
    pub fn abandon(&self, fault: Fault, moving: &Moving) {
        self.state.set(State::Abandoned);
        for piece in self.pieces.take() {
            if matches!(piece.what, What::Move) {
                moving.end(piece.volume, piece.lba);
            }
            piece.request.fail(fault);
        }
    }
}
