//! What holds whatever a host answers, and in whatever order.
