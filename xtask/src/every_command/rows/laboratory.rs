//! The laboratory, on machines with two OSTs and for a short time.

use super::{Row, ok};

/// `forebay sim`.
pub const ROWS: &[Row] = &[
    ok(
        "sim spider --machine {root}/machines/spider.toml --set servers.nodes=1 --set servers.osts_per_node=2 --set clients.nodes=2 \
         --threads 2 --modes sync-internal,default --window 100ms --gtc-steps 0 --seed 2 --cpu-factor 1.5 --plots {d}/plots",
        "seed 2, 100ms each",
    ),
    ok("sim wall --tasks 1,64 --files 100 --json", "\"experiment\":\"wall\""),
];
