// Exports the functions of a file that is compiled once for each instruction set, as a table. Each
// signature appears twice: in the struct and at the function.
//
//   struct CopyFns {  // in the header
//     void (*fill)(void* to, const void* pattern, int64_t bytes);
//     void (*transpose)(...);
//   };
//   const CopyFns* copy_fns();  // for the instruction set in use: copy_fns()->fill(...)
//
//   // in namespace mytorch::cpu::HWY_NAMESPACE
//   const CopyFns* CopyTable() {
//     static constexpr CopyFns table = {Fill, Transpose};
//     return &table;
//   }
//
//   // at the end of the file
//   MYTORCH_EXPORT_TABLE(mytorch::cpu, copy_fns, CopyTable)
//
// A table may also be a template of the element type:
//
//   template <class T>
//   const RowKernels<T>& row_kernels();  // in the header
//
//   MYTORCH_EXPORT_TABLE_OF(float, mytorch::cpu, row_kernels, FloatRows)

// HWY_ONCE holds in the last inclusion of a file, which exports. So there is no #pragma once.
#undef MYTORCH_EXPORT_TABLE
#undef MYTORCH_EXPORT_TABLE_OF
#if HWY_ONCE
#define MYTORCH_EXPORT_TABLE(space, name, Table) \
  namespace space {                              \
  MYTORCH_TABLE_FUNCTION(name, Table)            \
  }
#define MYTORCH_EXPORT_TABLE_OF(T, space, name, Table) \
  namespace space {                                    \
  template <>                                          \
  MYTORCH_TABLE_FUNCTION(name<T>, Table)               \
  }
#else
#define MYTORCH_EXPORT_TABLE(space, name, Table)
#define MYTORCH_EXPORT_TABLE_OF(T, space, name, Table)
#endif

// Defines name(), which returns the result of `Table`, a function of the namespace HWY_NAMESPACE,
// for the instruction set in use. Each call looks the set up again, a load and an indirect jump, so
// that a test that switches sets sees the functions of the new one.
#define MYTORCH_TABLE_FUNCTION(name, Table)       \
  decltype(HWY_STATIC_DISPATCH(Table)()) name() { \
    HWY_EXPORT(Table);                            \
    return HWY_DYNAMIC_DISPATCH(Table)();         \
  }
