//! The lab: the storage reviewers' tests on any device, with a verdict on every number.
//!
//! | file | what |
//! |---|---|
//! | `model` | a result: cells, series, gates; what `result.json` holds |
//! | `published` | the reviews' figures as results |
//! | `suite`, `plan` | what a suite asks for; its cells, time and wear on one target |
//! | `target`, `safety`, `written` | what is measured; what may be written; what was |
//! | `served` | what serves a target on this machine, which is not noise |
//! | `fio`, `fio_json`, `fio_log` | the load generator, and what it prints |
//! | `hosts` | several of them, which make one load |
//! | `together` | several targets under one load, and how that scales |
//! | `bench`, `exported` | the bench as the generator: of modelled drives, of NVMe/TCP exports |
//! | `simulated`, `spent` | systems of `predict` as targets; what simulating takes |
//! | `array` | an array that is failed and rebuilt meanwhile |
//! | `run` | carries out a plan, saves every cell, goes on after a stop |
//! | `steady`, `bins`, `curve`, `gates` | the arithmetic, and the verdicts |
//! | `findings` | what a result says, in sentences |
//! | `report`, `money` | one page of HTML |
//! | `files`, `store` | a picture of each chart, a workbook; results that are kept, their history and index |
//! | `compare`, `import` | results side by side; results of other tools |
//! | `calibrate`, `forecast`, `learning` | published figures beside those of the modelled systems of `predict`; predictions; drive files from runs |
//!
//! It knows nothing of our arrays: a target is a path or an address, and who serves an array says how it is failed. It
//! starts programs and opens files itself, outside of `rt`: nothing here is in the way of a request.

pub mod array;
pub mod bench;
pub mod bins;
pub mod calibrate;
pub mod compare;
pub mod curve;
pub mod error;
pub mod exported;
pub mod files;
pub mod findings;
pub mod fio;
pub mod fio_json;
pub mod fio_log;
pub mod forecast;
pub mod gates;
pub mod host;
pub mod hosts;
pub mod import;
pub mod learning;
pub mod model;
pub mod money;
pub mod plan;
pub mod published;
pub mod report;
pub mod run;
pub mod safety;
pub mod served;
pub mod simulated;
pub mod spent;
pub mod steady;
pub mod store;
pub mod suite;
pub mod target;
pub mod together;
pub mod units;
pub mod written;

pub use error::Error;
