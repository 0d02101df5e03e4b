//! A queue as its controller knows it, whichever thread has its connection.
//!
//! Invariant: no I/O command of a queue begins after its connection was cut.

use std::rc::Rc;

use super::{
    controller::{Connection, Controller},
    entry::{Sqe, fabrics},
    execute::{self, Target},
    request::{self, Command},
    status::Status,
    subsystem::Subsystems,
};

/// A queue of a controller.
pub struct Queue<S: Subsystems> {
    /// Its controller.
    pub controller: Rc<Controller<S>>,
    connection: Rc<Connection>,
    /// Its identifier; 0 for admin.
    pub id: u16,
}

impl<S: Subsystems> Queue<S> {
    /// The queue of a Connect command.
    pub fn new(controller: Rc<Controller<S>>, connection: Rc<Connection>, id: u16) -> Self {
        controller.queues.borrow_mut().insert(id, connection.clone());
        Queue { controller, connection, id }
    }

    /// Whether its connection was ended.
    pub fn is_cut(&self) -> bool {
        self.connection.is_cut()
    }

    /// Ends its connection.
    pub fn cut(&self) {
        self.connection.cut();
    }

    /// No command of it begins any more; what is to be sent is sent.
    pub fn end(&self) {
        self.connection.end();
    }

    /// Takes it from its controller.
    pub fn leave(&self) {
        let mut queues = self.controller.queues.borrow_mut();
        // After a reset another connection may be this queue.
        if queues.get(&self.id).is_some_and(|c| Rc::ptr_eq(c, &self.connection)) {
            queues.remove(&self.id);
        }
    }

    /// What a command of an I/O queue asks for; `capsule` is the length of the data in its capsule.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn judge(&self, sqe: &Sqe, capsule: u32, intact: bool) -> Result<(Target<S::N>, Command), Status> {
        if !intact {
            return Err(Status::TRANSPORT_ERROR);
        }
        match (sqe.opcode(), sqe.fabrics_type()) {
            (fabrics::OPCODE, fabrics::CONNECT) => return Err(Status::SEQUENCE_ERROR),
            (fabrics::OPCODE, _) => return Err(Status::INVALID_OPCODE),
            _ if !self.controller.is_ready() => return Err(Status::SEQUENCE_ERROR),
            _ => {}
        }
        let target = execute::target(&self.controller, sqe)?;
        match request::check(sqe, target.info(), capsule) {
            Ok(command) => Ok((target, command)),
            Err(status) => {
                target.count_error();
                Err(status)
            }
        }
    }

    /// Keeps an error for the error log.
    pub fn failed(&self, sqe: &Sqe, status: Status) {
        tracing::debug!(queue = self.id, opcode = sqe.opcode(), %status, "nvme");
        self.controller.failed(self.id, sqe, status);
    }
}
