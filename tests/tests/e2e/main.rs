//! What an app or a person sees of the real product, by topic. One binary, so that it is linked
//! once.

mod fixture;
