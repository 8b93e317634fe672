// Records operators registered at run time: each call is a Function whose backward calls the
// operator that computes the gradient.
#include <algorithm>
#include <any>
#include <memory>
#include <utility>

#include "core/types/errors.h"
#include "dispatcher/custom/custom.h"
#include "mytorch/autograd/function.h"
#include "mytorch/autograd/record.h"

namespace mytorch::autograd {
namespace {

// The state of a call that backward needs, besides its tensors.
struct CustomCall {
  const CustomOperator* op;
  std::vector<Value> args;  // None for saved tensors
  // The source of the value of each argument of the gradient's operator.
  struct ArgumentSource {
    enum { kDefault, kGrad, kArgument, kSaved } from = kDefault;
    size_t at = 0;  // the index of the gradient, argument or saved tensor
  };
  std::vector<ArgumentSource> sources;
};

// Returns the index in a name: 3 for "grad3", 0 for "grad" if there is one result; -1 for other
// names.
int64_t numbered(std::string_view name, std::string_view prefix, size_t count) {
  if (count == 1 && name == prefix) return 0;
  for (size_t i = 0; i < count; ++i) {
    if (name == absl::StrCat(piece(prefix), i)) return static_cast<int64_t>(i);
  }
  return -1;
}

// Determines the tensors to save for the gradient's operator, and the sources of its arguments.
CustomCall plan(const CustomOperator& op, const std::vector<Value>& args,
                const std::vector<Tensor>& results, std::vector<Tensor>* to_save) {
  CustomCall call{&op, args, {}};
  const auto save = [&](const Tensor& tensor) {
    to_save->push_back(tensor);
    return CustomCall::ArgumentSource{CustomCall::ArgumentSource::kSaved, to_save->size() - 1};
  };
  const OpInfo& gradient = *op.gradient->info;
  for (int i = 0; i < gradient.num_args; ++i) {
    const std::string_view name = gradient.args[i].name;
    CustomCall::ArgumentSource source;
    size_t a = 0;
    while (a < op.schema.args.size() && name != op.schema.args[a].name) ++a;
    if (a < op.schema.args.size()) {
      const auto* tensor = std::get_if<Tensor>(&args[a].variant());
      source = tensor != nullptr && tensor->defined()
                   ? save(*tensor)
                   : CustomCall::ArgumentSource{CustomCall::ArgumentSource::kArgument, a};
    } else if (const int64_t g = numbered(name, "grad", results.size()); g >= 0) {
      source = {CustomCall::ArgumentSource::kGrad, static_cast<size_t>(g)};
    } else if (const int64_t r = numbered(name, "result", results.size()); r >= 0) {
      source = save(results[static_cast<size_t>(r)]);
    }
    call.sources.push_back(source);
  }
  // Saved tensors keep the tensors alive and detect overwrites.
  for (Value& value : call.args) {
    if (std::holds_alternative<Tensor>(value.variant())) value = Value();
  }
  return call;
}

std::vector<Tensor> custom_backward(FunctionContext* context, const std::vector<Tensor>& grads) {
  const auto& call = *std::any_cast<std::shared_ptr<const CustomCall>>(context->saved_data["call"]);
  const std::vector<Tensor> saved = context->saved_tensors();
  const OpInfo& gradient = *call.op->gradient->info;
  std::vector<NamedValue> args;
  for (size_t i = 0; i < call.sources.size(); ++i) {
    const CustomCall::ArgumentSource& source = call.sources[i];
    const char* name = gradient.args[i].name;
    switch (source.from) {
      case CustomCall::ArgumentSource::kGrad:
        args.emplace_back(name, grads[source.at]);
        break;
      case CustomCall::ArgumentSource::kArgument:
        args.emplace_back(name, call.args[source.at]);
        break;
      case CustomCall::ArgumentSource::kSaved:
        args.emplace_back(name, saved[source.at]);
        break;
      case CustomCall::ArgumentSource::kDefault:
        break;
    }
  }
  std::vector<Value> results = mytorch::call(gradient.name, {}, std::move(args));
  // The operator returns one per Tensor argument; backward returns one per argument.
  std::vector<Tensor> out;
  size_t next = 0;
  for (const ArgInfo& arg : call.op->schema.args) {
    out.emplace_back();
    if (arg.type != ArgType::kTensor && arg.type != ArgType::kOperand) continue;
    if (next == results.size()) {
      fail(ErrorCode::kInternal, "[", gradient.base, "] gave ", results.size(),
           " gradients, fewer than ", call.op->info.base, " has Tensor arguments");
    }
    const Value& value = results[next++];
    if (!value.is_none()) out.back() = value.tensor();
  }
  return out;
}

bool any_requires(const std::vector<Tensor>& list) {
  return std::any_of(list.begin(), list.end(),
                     [](const Tensor& t) { return any_requires_grad(t); });
}

std::vector<Value> record(const CustomOperator& op, const std::vector<Value>& args) {
  FunctionCall call(op.info.base, &custom_backward);
  for (const Value& value : args) {
    const auto* tensor = std::get_if<Tensor>(&value.variant());
    const auto* list = std::get_if<std::vector<Tensor>>(&value.variant());
    if (tensor != nullptr) {
      call.add(*tensor);
    } else if (list != nullptr && any_requires(*list)) {
      fail(ErrorCode::kUnsupported, "[", op.info.base,
           "] has no gradient for lists of tensors: take each as an argument of its own, or detach "
           "them");
    } else {
      call.add(0);
    }
  }
  FunctionContext* context = call.begin();
  std::vector<Tensor> results;
  for (Value& value : next_custom(kLayerAutograd, op, args)) results.push_back(value.tensor());
  std::vector<Tensor> to_save;
  context->saved_data["call"] = std::shared_ptr<const CustomCall>(
      std::make_shared<CustomCall>(plan(op, args, results, &to_save)));
  context->save_for_backward(std::move(to_save));
  call.finish(&results);
  return {results.begin(), results.end()};
}

// libmytorch links this library as a whole, so that the registration is never dropped.
[[maybe_unused]] const bool installed = (record_custom = record, true);

}  // namespace
}  // namespace mytorch::autograd
