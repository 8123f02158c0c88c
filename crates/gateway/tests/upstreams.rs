//! Servers that are processes: their life, their lists and their calls, against a real one in `upstreams/mock.py`.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

mod upstreams {
    mod bounds;
    mod bridges;
    mod calls;
    mod config;
    mod desk;
    mod life;
    mod lists;
    mod mock;
    mod oauth;
    mod web;
}
