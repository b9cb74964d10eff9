//! The table against a model, pages against a device of memory.

mod checkpoints;
mod device;
mod model;
mod pages;
mod shape;
