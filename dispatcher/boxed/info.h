// The description of an operator from its generated row (table/row.h), with its boxed forms.
#pragma once

#include "dispatcher/boxed/boxed.h"
#include "dispatcher/table/row.h"

namespace mytorch::row {

template <class Op, class Args = void>
constexpr OpInfo info_of(const Row& row) {
  OpInfo info = description<Op, Args>(row);
  info.boxed = boxed<Op, kFunction>;
  if constexpr (Op::inplace) info.boxed_inplace = boxed<Op, kInplace>;
  if constexpr (Op::outs > 0) info.boxed_out = boxed<Op, kOut>;
  if constexpr (Op::derived) info.boxed_wanted = boxed_wanted<Op>;
  return info;
}

}  // namespace mytorch::row
