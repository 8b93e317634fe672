#include "dispatcher/table/args_copy.h"

#include "dispatcher/table/fields.h"

namespace mytorch {

ArgsCopy::ArgsCopy(const OpInfo& op, const void* args)
    : bytes_(static_cast<const char*>(args), static_cast<const char*>(args) + op.args_size) {
  for (int i = 0; i < op.num_args; ++i) {
    if (op.args[i].type != ArgType::kTensorList || op.args[i].offset == kNoField) continue;
    auto& list = field<mt_tensor_list>(bytes_.data(), op.args[i].offset);
    lists_.emplace_back(list.data, list.data + list.size);
    list.data = lists_.back().data();
  }
}

}  // namespace mytorch
