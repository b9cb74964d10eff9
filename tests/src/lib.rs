//! What the whole-system tests share. The tests themselves lie in the folders beside `src`.
