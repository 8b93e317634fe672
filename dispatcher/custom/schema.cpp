#include "dispatcher/custom/schema.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>

#include "core/types/errors.h"
#include "core/types/fnv.h"
#include "dispatcher/table/defaults.h"

namespace mytorch {
namespace {

// The struct field of an argument, by the table in abi.h.
struct SchemaField {
  size_t size, alignment;
};
template <class T>
constexpr SchemaField field_of() {
  return {sizeof(T), alignof(T)};  // NOLINT(bugprone-sizeof-expression): pointers are meant
}

struct TypeInfo {
  ArgType type;
  bool optional;
  SchemaField field;
};
const std::map<std::string_view, TypeInfo>& argument_types() {
  static const auto* const types = new std::map<std::string_view, TypeInfo>{
      {"Tensor", {ArgType::kTensor, false, field_of<const mt_tensor*>()}},
      {"Tensor?", {ArgType::kTensor, true, field_of<const mt_tensor*>()}},
      {"Tensor[]", {ArgType::kTensorList, false, field_of<mt_tensor_list>()}},
      {"Operand", {ArgType::kOperand, false, field_of<const mt_tensor*>()}},
      {"Scalar", {ArgType::kScalar, false, field_of<mt_scalar>()}},
      {"Scalar?", {ArgType::kScalar, true, field_of<mt_scalar>()}},
      {"int", {ArgType::kInt, false, field_of<int64_t>()}},
      {"int?", {ArgType::kInt, true, field_of<mt_optional_int>()}},
      {"bool", {ArgType::kBool, false, field_of<int64_t>()}},
      {"bool?", {ArgType::kBool, true, field_of<mt_optional_int>()}},
      {"float", {ArgType::kFloat, false, field_of<double>()}},
      {"float?", {ArgType::kFloat, true, field_of<mt_optional_float>()}},
      {"int[]", {ArgType::kIntList, false, field_of<mt_int_list>()}},
      {"int[]?", {ArgType::kIntList, true, field_of<mt_int_list>()}},
      {"float[]", {ArgType::kFloatList, false, field_of<mt_float_list>()}},
      {"float[]?", {ArgType::kFloatList, true, field_of<mt_float_list>()}},
      {"str", {ArgType::kStr, false, field_of<const char*>()}},
      {"str?", {ArgType::kStr, true, field_of<const char*>()}},
      {"ScalarType", {ArgType::kScalarType, false, field_of<mt_dtype>()}},
      {"ScalarType?", {ArgType::kScalarType, true, field_of<mt_dtype>()}},
  };
  return *types;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
         });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Splits at commas outside brackets.
std::vector<std::string_view> pieces(std::string_view text) {
  std::vector<std::string_view> found;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      found.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    } else if (text[i] == '[' || text[i] == '(') {
      ++depth;
    } else if (text[i] == ']' || text[i] == ')') {
      --depth;
    }
  }
  if (found.size() == 1 && found[0].empty()) found.clear();
  return found;
}

class SchemaParser {
 public:
  explicit SchemaParser(const std::string& text) : text_(text) {}

  Schema parse() {
    const size_t open = text_.find('(');
    const size_t arrow = text_.rfind("->");
    const size_t close = arrow == std::string::npos ? arrow : text_.rfind(')', arrow);
    if (open == std::string::npos || close == std::string::npos || close < open) {
      refuse("it is not of the form library::name(Type argument, ...) -> Tensor");
    }
    read_name(trimmed(std::string_view(text_).substr(0, open)));
    schema_.args_size = sizeof(mt_args_header);
    bool by_name = false;
    for (const auto& piece : pieces(std::string_view(text_).substr(open + 1, close - open - 1))) {
      if (piece == "*" && !by_name) {
        by_name = true;
      } else {
        read_argument(piece, by_name);
      }
    }
    read_results(trimmed(std::string_view(text_).substr(arrow + 2)));
    schema_.args_size = (schema_.args_size + 7) / 8 * 8;
    schema_.hash = fnv1a(signature_ + "->" + results_);
    return std::move(schema_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... why) {
    fail(ErrorCode::kValue, "[register_operator] \"", text_, "\": ", why...);
  }

  const char* keep(std::string_view text) { return schema_.strings.emplace_back(text).c_str(); }

  uint32_t place(SchemaField field) {
    const auto alignment = static_cast<uint32_t>(field.alignment);
    const uint32_t offset = (schema_.args_size + alignment - 1) / alignment * alignment;
    schema_.args_size = offset + static_cast<uint32_t>(field.size);
    return offset;
  }

  void read_name(std::string_view name) {
    const size_t scope = name.find("::");
    const std::string_view rest = scope == name.npos ? name : name.substr(scope + 2);
    const size_t dot = rest.find('.');
    if (scope == name.npos || !is_name(name.substr(0, scope)) || !is_name(rest.substr(0, dot)) ||
        (dot != rest.npos && !is_name(rest.substr(dot + 1)))) {
      refuse("its name must be library::name or library::name.overload");
    }
    schema_.name = name;
    schema_.base = name.substr(0, dot == rest.npos ? dot : scope + 2 + dot);
    signature_ = schema_.name;
  }

  void read_argument(std::string_view piece, bool by_name) {
    const size_t equals = piece.find('=');
    const std::string_view declared = trimmed(piece.substr(0, equals));
    const size_t space = declared.rfind(' ');
    if (space == declared.npos) refuse("'", piece, "' is not of the form Type name");
    const std::string_view type = trimmed(declared.substr(0, space));
    const std::string_view name = declared.substr(space + 1);
    if (type.find('!') != type.npos || type.find('(') != type.npos) {
      refuse("'", name, "' is written or viewed, which only operators of ops.yaml may do");
    }
    const auto known = argument_types().find(type);
    if (known == argument_types().end()) {
      std::string all;
      for (const auto& [each, info] : argument_types())
        absl::StrAppend(&all, " ", mytorch::piece(each));
      refuse("there is no type '", type, "'; there are", all);
    }
    if (!is_name(name)) refuse("'", name, "' is no name");
    for (const ArgInfo& arg : schema_.args) {
      if (name == arg.name) refuse("there are two arguments '", name, "'");
    }
    const TypeInfo& info = known->second;
    ArgInfo arg{};
    arg.name = keep(name);
    arg.type = info.type;
    arg.optional = info.optional;
    arg.kw_only = by_name;
    if (equals != piece.npos) arg.default_text = keep(trimmed(piece.substr(equals + 1)));
    check_default(arg);
    arg.offset = place(info.field);
    schema_.args.push_back(arg);
    schema_.num_inputs += info.type == ArgType::kTensor || info.type == ArgType::kOperand ||
                          info.type == ArgType::kTensorList;
    absl::StrAppend(&signature_, ",", by_name ? "*" : "", mytorch::piece(type), " ",
                    mytorch::piece(name));
  }

  void check_default(const ArgInfo& arg) {
    if (arg.default_text == nullptr) return;
    try {
      default_value(arg);
    } catch (const Error& error) {
      refuse(error.what());
    }
  }

  void read_results(std::string_view text) {
    if (text.size() >= 2 && text.front() == '(' && text.back() == ')') {
      text = text.substr(1, text.size() - 2);
    }
    for (const std::string_view piece : pieces(text)) {
      const size_t space = piece.find(' ');
      if (piece.substr(0, space) != "Tensor") {
        refuse("'", piece, "': results are Tensors, as in -> Tensor or -> (Tensor a, Tensor b)");
      }
      const std::string_view name = space == piece.npos ? "" : trimmed(piece.substr(space));
      schema_.outputs.push_back({keep(name), place(field_of<const mt_tensor*>()), -1});
      absl::StrAppend(&results_, mytorch::piece(piece), ",");
    }
    if (schema_.outputs.empty()) refuse("it has no result");
  }

  const std::string& text_;
  Schema schema_;
  std::string signature_, results_;  // the hashed text: names and types, no defaults
};

}  // namespace

Schema parse_schema(const std::string& text) { return SchemaParser(text).parse(); }

}  // namespace mytorch
