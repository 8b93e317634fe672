// Exports the functions of a file that is compiled once for each instruction set, as a table. Each
// signature appears twice: in the struct and at the function.
//
//   struct CopyFns {  // in the header
//     void (*fill)(void* to, const void* pattern, int64_t bytes);
//     void (*transpose)(...);
//   };
//   const CopyFns* copy_fns();  // for the instruction set in use: copy_fns()->fill(...)
//
//   // in namespace HWY_NAMESPACE
//   const CopyFns* CopyTable() {
//     static constexpr CopyFns table = {Fill, Transpose};
//     return &table;
//   }
//
//   #if HWY_ONCE
//   MYTORCH_EXPORT_TABLE(copy_fns, CopyTable)
//   #endif
//
// For functions that are templates of a type, the struct is one, too, and the table function is
// instantiated for each: const RowFns<float>* RowTableFloat() { return &kTable<float>; }.
#pragma once

// Defines name(), which returns the result of `Table`, a function of the namespace HWY_NAMESPACE,
// for the best instruction set. The choice is made at the first call.
#define MYTORCH_EXPORT_TABLE(name, Table)                   \
  HWY_EXPORT(Table);                                        \
  decltype(HWY_STATIC_DISPATCH(Table)()) name() {           \
    static const auto best = HWY_DYNAMIC_DISPATCH(Table)(); \
    return best;                                            \
  }
