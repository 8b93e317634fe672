// Lists of options. One list gives an aggregate, for designated initializers, and the setters of
// libtorch's builder:
//
//   #define LIST (double, lr, 1e-3), (double, momentum, 0)
//   struct SGDArgs { MYTORCH_FIELDS(LIST) };                 // SGDArgs{.lr = 0.1}
//   class SGDOptions { ... MYTORCH_SETTERS(LIST) };          // SGDOptions(0.1).momentum(0.9)
//
// A class with setters has a member function args() that returns a reference to its aggregate.
#pragma once

#include <utility>

// Applies `macro` to each element, a tuple in parentheses, of a list of at most 80.
#define MYTORCH_FOR_EACH(macro, ...) \
  __VA_OPT__(MYTORCH_EXPAND(MYTORCH_FOR_EACH_STEP(macro, __VA_ARGS__)))
#define MYTORCH_FOR_EACH_STEP(macro, element, ...) \
  macro element __VA_OPT__(MYTORCH_FOR_EACH_AGAIN MYTORCH_PARENS(macro, __VA_ARGS__))
#define MYTORCH_FOR_EACH_AGAIN() MYTORCH_FOR_EACH_STEP
#define MYTORCH_PARENS ()
#define MYTORCH_EXPAND(...) \
  MYTORCH_EXPAND1(MYTORCH_EXPAND1(MYTORCH_EXPAND1(MYTORCH_EXPAND1(__VA_ARGS__))))
#define MYTORCH_EXPAND1(...) \
  MYTORCH_EXPAND2(MYTORCH_EXPAND2(MYTORCH_EXPAND2(MYTORCH_EXPAND2(__VA_ARGS__))))
#define MYTORCH_EXPAND2(...) __VA_ARGS__

#define MYTORCH_FIELDS(...) MYTORCH_FOR_EACH(MYTORCH_FIELD, __VA_ARGS__)
#define MYTORCH_FIELD(type, name, value) type name = value;

#define MYTORCH_SETTERS(...) MYTORCH_FOR_EACH(MYTORCH_SETTER, __VA_ARGS__)
#define MYTORCH_SETTER(type, name, value)                \
  auto& name(type name##_value) {                        \
    this->args().name = std::move(name##_value);         \
    return *this;                                        \
  }                                                      \
  const type& name() const { return this->args().name; } \
  type& name() { return this->args().name; }
