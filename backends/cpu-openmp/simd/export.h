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
// A table may also be a template of the element type:
//
//   template <class T>
//   const RowKernels<T>& row_kernels();  // in the header
//
//   template <>
//   MYTORCH_EXPORT_TABLE(row_kernels<float>, FloatRows)
#pragma once

// Defines name(), which returns the result of `Table`, a function of the namespace HWY_NAMESPACE,
// for the instruction set in use. Each call looks the set up again, a load and an indirect jump, so
// that a test that switches sets sees the functions of the new one.
#define MYTORCH_EXPORT_TABLE(name, Table)         \
  decltype(HWY_STATIC_DISPATCH(Table)()) name() { \
    HWY_EXPORT(Table);                            \
    return HWY_DYNAMIC_DISPATCH(Table)();         \
  }
