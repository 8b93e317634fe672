// `mytorch ops`: the kernels of every backend, or a description of one operator.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "conformance/custom.h"
#include "conformance/inputs.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/table/op.h"
#include "mytorch/backends.h"
#include "mytorch/call.h"
#include "mytorch/error.h"
#include "tools/commands.h"
#include "tools/suggest.h"

namespace mytorch::tools {
namespace {

std::string flag_names(const KernelEntry& kernel) {
  static constexpr std::pair<uint32_t, const char*> kNames[] = {
      {MT_TAKES_STRIDED, "strided"},
      {MT_TAKES_BROADCAST, "broadcast"},
      {MT_TAKES_MIXED_DTYPES, "mixed_dtypes"},
      {MT_TAKES_ALIAS, "alias"},
  };
  std::string text;
  for (const auto& [flag, name] : kNames) {
    if ((kernel.abi.flags & flag) != 0) text += std::string(text.empty() ? "" : ", ") + name;
  }
  return text.empty() ? "contiguous operands of one type" : text;
}

std::vector<int> device_slots() {
  std::set<int> slots;
  for (const Backend* backend : backends()) slots.insert(backend->device_slot);
  return {slots.begin(), slots.end()};
}

std::vector<conformance::OpRecord> all_records() {
  return conformance::all_records(conformance::share_folder());
}

// Throws Error(kValue) for a name that no family has.
void check_family(const std::string& family, const std::vector<conformance::OpRecord>& catalog) {
  std::vector<std::string> families;  // in the order of ops.yaml
  for (const auto& op : catalog) {
    if (op.family.empty() || (!families.empty() && families.back() == op.family)) continue;
    families.push_back(op.family);
  }
  if (std::find(families.begin(), families.end(), family) != families.end()) return;
  throw Error(ErrorCode::kValue,
              absl::StrCat("'", family, "' is no family of operators: give one of ",
                           absl::StrJoin(families, ", ")));
}

// All operators, or those of a family.
int coverage(bool derived, const std::string& family) {
  const auto all = backends();
  const auto catalog = all_records();
  if (!family.empty()) check_family(family, catalog);
  std::cout << std::left << std::setw(44) << "operator" << std::setw(11) << "meaning";
  for (const Backend* backend : all) std::cout << std::setw(14) << backend->name;
  std::cout << "\n";
  std::vector<int> counts(all.size(), 0);
  for (const auto& op : catalog) {
    if (op.derived && !derived) continue;
    if (!family.empty() && op.family != family) continue;
    const OpEntry* entry = find_op(op.name);
    std::cout << std::setw(44) << op.name << std::setw(11) << op.meaning;
    for (size_t i = 0; i < all.size(); ++i) {
      std::string cell = op.meaning == "view" || !op.has_kernel ? "-" : "decomposes";
      if (op.has_kernel && entry != nullptr) {
        for (const KernelEntry& c : kernels(*entry, all[i]->device_slot)) {
          if (c.backend != all[i]) continue;
          cell = c.compiled && cell != "kernel" ? "compiled" : "kernel";
        }
        if (cell == "decomposes" && op.meaning == "primitive") cell = "MISSING";
        if (cell == "decomposes" && op.meaning == "custom") cell = "-";
        counts[i] += cell == "kernel" || cell == "compiled";
      }
      std::cout << std::setw(14) << cell;
    }
    std::cout << "\n";
  }
  std::cout << std::setw(55) << "kernels";
  for (int n : counts) std::cout << std::setw(14) << n;
  std::cout << "\n";
  return 0;
}

// Returns the arguments and results of a sample call without empty tensors, such as
// "self=float32[3, 4], dim=-1 -> result=float32[3, 4]"; "" if there is none.
std::string example_of(const conformance::OpRecord& op) {
  try {
    for (const conformance::Case& c : conformance::cases_of(op)) {
      if (!c.error().empty() || c.may_fail()) continue;
      const conformance::Arguments arguments = conformance::make_arguments(c, 0, kCPU, c.dtype);
      const std::string text = conformance::describe(arguments);  // before an operator writes
      if (text.find("[0") != std::string::npos) continue;
      conformance::Arguments results;
      for (Value& result : call(op.name, {}, arguments.named())) {
        const size_t i = results.values.size();
        results.values.emplace_back(i < op.result_names.size() ? op.result_names[i] : "result",
                                    std::move(result));
      }
      return text + " -> " + conformance::describe(results);
    }
  } catch (const Error&) {
    // No backend for the CPU is loaded.
  }
  return "";
}

void print_one(const conformance::OpRecord& op) {
  std::cout << op.schema << "\n  " << op.doc << "\n";
  if (!op.family.empty()) std::cout << "  family: " << op.family << "\n";
  for (const std::string& alias : op.aliases) std::cout << "  also named " << alias << "\n";
  for (const std::string& line : op.declarations) std::cout << "  mytorch::  " << line << "\n";
  for (const std::string& line : op.methods) std::cout << "  Tensor::   " << line << "\n";
  std::cout << "  meaning: " << op.meaning
            << (op.kernel_optional ? "; a backend may have a kernel for it" : "");
  if (!op.accepts.empty()) std::cout << "\n  types: " << op.accepts;
  if (const std::string example = example_of(op); !example.empty()) {
    std::cout << "\n  shapes, for example: " << example;
  }
  std::cout << "\n  autocast: " << op.autocast << "\n  gradient: ";
  if (op.gradient == "derived") {
    std::cout << (op.derived_gradient.empty() ? "zero" : "derived, " + op.derived_gradient);
  } else if (op.gradient == "decompose") {
    std::cout << "through the operators into which it decomposes";
  } else if (op.gradient == "formulas") {
    for (size_t i = 0; i < op.formulas.size(); ++i) std::cout << (i ? "; " : "") << op.formulas[i];
  } else {
    std::cout << "none";
  }
  std::cout << "\n";
  const OpEntry* entry = find_op(op.name);
  if (entry == nullptr || !op.has_kernel) return;
  for (int slot : device_slots()) {
    std::cout << "  kernels on " << device_type(slot).name << ", in order of priority:\n";
    const auto found = kernels(*entry, slot);
    if (found.empty()) std::cout << "    none\n";
    for (const KernelEntry& c : found) {
      const bool ref = (c.backend->abi.flags & MT_BACKEND_REFERENCE) != 0;
      std::cout << "    " << c.backend->name << "/" << (c.abi.name != nullptr ? c.abi.name : "?")
                << ", priority " << c.abi.priority << ", accepts " << flag_names(c)
                << (c.abi.supports != nullptr ? ", conditional" : "")
                << (ref ? "; only if preferred" : "") << "\n";
    }
  }
}

int one(const std::string& name) {
  const std::vector<conformance::OpRecord> records = all_records();
  bool found = false;
  for (const auto& op : records) {
    const bool alias = std::find(op.aliases.begin(), op.aliases.end(), name) != op.aliases.end();
    if (op.name != name && op.name.substr(0, op.name.find('.')) != name && !alias) continue;
    print_one(op);
    found = true;
  }
  if (!found) throw Error(ErrorCode::kValue, explain_unknown(name, records));
  return 0;
}

}  // namespace

Run add_ops(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  auto derived = std::make_shared<bool>(false);
  app.add_option("name", *name, "an operator by its full name, or all overloads of a base name");
  app.add_flag("--derived", *derived, "also list the operators of derived gradients");
  auto family = std::make_shared<std::string>();
  app.add_option("--family", *family, "list only a section of ops.yaml, such as pointwise")
      ->excludes("name");
  return [name, derived, family] {
    load_default_backends();
    return name->empty() ? coverage(*derived, *family) : one(*name);
  };
}

}  // namespace mytorch::tools
