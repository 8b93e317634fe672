"""Tests messages about the programs' arguments, output and tables."""

import json
import shutil
import unittest

from programs import BIN, ProgramTest, cases


class MnistTest(ProgramTest):
    @cases(
        unknown=(["--modle", "mlp"], "--modle"),
        without_value=(["--model"], "--model"),
        no_such_model=(["--model", "rnn"], ["--model", "rnn", "mlp"]),
        negative_epochs=(["--epochs", "-1"], "--epochs"),
        epochs_in_words=(["--epochs", "many"], "--epochs"),
        no_batch=(["--batch", "0"], "--batch"),
        fractional_batch=(["--batch", "1.5"], "--batch"),
        huge_batch=(["--batch", "99999999999999999999"], "--batch"),
        no_threads=(["--threads", "0"], "--threads"),
        too_many_threads=(["--threads", "5000"], "--threads"),
        seed_in_words=(["--seed", "x"], "--seed"),
        negative_seed=(["--seed", "-1"], "--seed"),
        zero_rate=(["--lr", "0"], "--lr"),
        negative_rate=(["--lr", "-1"], "--lr"),
        nan_rate=(["--lr", "nan"], "--lr"),
        infinite_rate=(["--lr", "inf"], "--lr"),
        rate_with_a_letter=(["--lr", "0.1x"], "--lr"),
        stray_word=(["stray"], "stray"),
        unknown_device=(["--device", "tpu"], ["'tpu'", "known types: cpu"]),
        device_with_a_letter=(["--device", "cpu:x"], "cpu:x"),
        missing_device=(["--device", "cpu:1"], "no cpu:1"),
        empty_device=(["--device", ""], "''"),
    )
    def option(self, args, says):
        self.mnist_refused(*args, says=says)

    @cases(long=("--help",), short=("-h",))
    def help_is_no_error(self, option):
        done = self.run_program("mnist", option)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("--model", done.stdout)


class OutputTest(ProgramTest):
    @cases(
        mnist=("mnist", "--data", "data", "--epochs", "1"),
        info=("mytorch", "info"),
        ops=("mytorch", "ops"),
        one_operator=("mytorch", "ops", "add"),
        check=("mytorch", "check", "--backend", "reference", "--only", "neg", "--quick"),
    )
    def full_standard_output(self, program, *args):
        with open("/dev/full", "w") as full:
            self.refused(program, *args, says="standard output", stdout=full)


class ToolsTest(ProgramTest):
    @cases(
        missing=([], "subcommand"),
        unknown=(["inof"], "inof"),
        ops_unknown_operator=(["ops", "no_such_operator"], "no_such_operator"),
        ops_unknown_family=(["ops", "--family", "none"], ["'none'", "pointwise", "collective"]),
        ops_family_of_an_operator=(["ops", "neg", "--family", "pointwise"], "--family"),
        ops_unknown_option=(["ops", "--nonsense"], "--nonsense"),
        check_seed_in_words=(["check", "--seed", "x"], ["--seed", "x"]),
        check_negative_seed=(["check", "--seed", "-1"], "--seed"),
        check_seed_without_value=(["check", "--seed"], "--seed"),
        check_unknown_device=(["check", "--device", "nowhere", "--only", "neg"], "nowhere"),
        check_unknown_type=(["check", "--dtype", "float33"], "float33"),
        check_unknown_operator=(["check", "--only", "no_such_operator"], "no_such_operator"),
        check_case_in_words=(["check", "--case", "x"], "--case"),
        check_case_out_of_range=(["check", "--only", "neg", "--case", "100000"], "case"),
    )
    def command(self, args, says):
        self.refused("mytorch", *args, says=says)

    @cases(scan=("scan", ["cumsum", "diff"], ["cat", "cumsum_grad"]), loss=("loss", ["kl_div"], ["add.Tensor"]))
    def operators_of_a_family(self, family, has, has_not):
        done = self.run_program("mytorch", "ops", "--family", family)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        listed = {line.split()[0] for line in done.stdout.splitlines()}
        self.assertLessEqual(set(has), listed)
        self.assertEqual(listed & set(has_not), set())

    @cases(
        nothing=([], ["--suite", "operator"]),
        unknown_operator=(["no_such_operator"], ["no_such_operator", "mytorch ops"]),
        missing_form=(["var_mean_"], "no in-place form"),
        unknown_suite=(["--suite", "none"], ["'none'", "pointwise", "matmul"]),
        unknown_case=(["--suite", "pointwise", "--case", "none"], "no such case"),
        operator_and_suite=(["add", "--suite", "norm"], "not both"),
        suite_and_shapes=(["--suite", "norm", "--shapes", "3"], "--shapes"),
        case_without_suite=(["add", "--case", "x"], "--suite"),
        too_many_shapes=(["add", "--shapes", "3,4,5"], ["3 shapes", "2 tensors", "other, self"]),
        letter_in_a_shape=(["add", "--shapes", "3xb,4"], "'b' in '3xb'"),
        unknown_layout=(["add", "--shapes", "3:upside,4"], "upside"),
        shapes_that_do_not_broadcast=(["add", "--shapes", "3,4"], ["(3,)", "(4,)"]),
        too_few_shapes=(["add", "--shapes", "3"], ["'other'", "--shapes"]),
        view_of_an_unknown_tensor=(["add", "--shapes", "3,3:of=third"], "third"),
        unknown_argument=(["exp", "--set", "dim=1"], ["no argument 'dim'", "self"]),
        argument_without_value=(["exp", "--set", "dim"], "NAME=VALUE"),
        argument_of_another_type=(["softmax", "--shapes", "3", "--set", "dim=x"], "'dim'"),
        unknown_type=(["exp", "--dtype", "float33"], "float33"),
        no_threads=(["exp", "--threads", "0"], "--threads"),
        unknown_cache=(["exp", "--cache", "hot"], "--cache"),
        unknown_backend=(["exp", "--backend", "nobody"], ["nobody", "cpu-openmp"]),
        unknown_form=(["relu_grad", "--form", "out"], "no such form"),
        seconds_in_words=(["exp", "--seconds", "x"], "--seconds"),
        missing_results=(["exp", "--compare", "nowhere"], "nowhere"),
        folder_that_cannot_be=(
            ["exp", "--shapes", "8", "--seconds", "0.001", "--json", "/no/where.json"],
            "/no/where.json",
        ),
    )
    def bench(self, args, says):
        self.refused("mytorch", "bench", *args, says=says)

    def call(self, *lines):
        """Returns the answers of `mytorch call` to lines of text."""
        done = self.run_program("mytorch", "call", text="\n".join(lines) + "\n")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_call_answers_each_line(self):
        x = {"dtype": "float32", "shape": [2, 2], "strides": [1, 2], "values": [1, "nan", "-inf", 4]}
        z = {"dtype": "complex64", "shape": [1], "values": [1, 2]}
        added, product, pieces, total = self.call(
            json.dumps({"op": "add", "args": [x, 2], "named": {"alpha": 0.5}}),
            json.dumps({"op": "mul", "args": [z, {"complex": [0, 1]}]}),
            json.dumps({"op": "split", "args": [x, 1]}),
            json.dumps({"op": "sum", "args": [x], "named": {"dim": [0], "dtype": {"type": "float64"}}}),
        )
        self.assertEqual(added["results"][0]["values"], [2.0, "-inf", "nan", 5.0])
        self.assertEqual(product["results"][0]["values"], [-2.0, 1.0])
        self.assertEqual([t["shape"] for t in pieces["results"][0]["tensors"]], [[1, 2], [1, 2]])
        self.assertEqual((total["results"][0]["dtype"], total["results"][0]["shape"]), ("float64", [2]))

    def test_call_goes_on_after_errors(self):
        refused = [
            ("no JSON", "no JSON object"),
            (json.dumps({"args": []}), "not valid"),
            (json.dumps({"op": "no_such_operator"}), "no operator"),
            (json.dumps({"op": "add", "args": [1, {"nonsense": 1}]}), "not valid"),
            (json.dumps({"op": "add", "args": [{"dtype": "float33", "shape": [], "values": [1]}, 1]}), "float33"),
            (json.dumps({"op": "neg", "args": [{"dtype": "float32", "shape": [3], "values": [1]}]}), "(3,)"),
        ]
        answers = self.call(*(line for line, _ in refused), json.dumps({"op": "ones", "args": [[1]]}))
        for (line, says), answer in zip(refused, answers):
            self.assertIn(says, answer["error"], line)
        self.assertEqual(answers[-1]["results"][0]["values"], [1.0])

    def test_ops_states_the_autocast_policy(self):
        for op, policy in (("matmul", "lower"), ("exp", "float32"), ("cat", "widest"), ("neg", "none")):
            done = self.run_program("mytorch", "ops", op)
            self.assertIn(f"\n  autocast: {policy}\n", done.stdout)

    def test_bench_refuses_results_of_another_form(self):
        results = self.folder / "results.json"
        results.write_text("[]")
        self.refused("mytorch", "bench", "exp", "--compare", results, says=[results])

    def test_bench_writes_results_and_compares_them_with_others(self):
        """In one run, because each measures the machine."""
        results, others = self.folder / "results.json", self.folder / "others.json"
        other = {"name": "add.Tensor/64,64", "real_time": 1, "time_unit": "ns"}
        others.write_text(json.dumps({"context": {"label": "peer"}, "benchmarks": [other]}))
        args = ("add", "--shapes", "64,64", "--seconds", "0.001", "--backend", "chosen")
        done = self.run_program("mytorch", "bench", *args, "--json", results, "--compare", others)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("mytorch bench add.Tensor --shapes 64,64 --dtype float32 --threads 1", done.stdout)
        self.assertRegex(done.stdout, r"add\.Tensor/64,64 .*[0-9]x  peer")
        entry = json.loads(results.read_text())["benchmarks"][0]
        self.assertEqual((entry["case"], entry["time_unit"]), ("add.Tensor/64,64", "ns"))


class TablesTest(ProgramTest):
    @cases(ops=("ops",), bench=("bench", "exp"))
    def missing(self, *args):
        self.refused("mytorch", *args, env={"MYTORCH_SHARE": str(self.folder)}, says=["ops.json", self.folder])

    @cases(
        operators=("ops.json", ["check", "--only", "neg", "--quick"], [b"[1]", b"{}", b"[{}]"]),
        samples=("samples.json", ["check", "--only", "neg", "--quick"], [b"[1]", b"{}", b"[{}]"]),
        suites=(
            "suites.json",
            ["bench", "--suite", "norm"],
            [b"{", b"{}", b"[]", b"[1]", b"[{}]", b'[{"suite": "norm", "name": "b", "op": "nothing"}]'],
        ),
        suites_for_one_operator=(
            "suites.json",
            ["bench", "exp"],
            [b"{", b"{}", b"[]", b"[1]", b"[{}]", b'[{"suite": "norm", "name": "b", "op": "nothing"}]'],
        ),
    )
    def damaged(self, name, args, contents):
        share = self.folder / "share"
        shutil.copytree(BIN.parent / "generated/share", share)
        whole = (share / name).read_bytes()
        for content in (b"", whole[: len(whole) // 2], *contents):
            (share / name).write_bytes(content)
            with self.subTest(content=content[:20]):
                self.refused("mytorch", *args, env={"MYTORCH_SHARE": str(share)}, says=name)


if __name__ == "__main__":
    unittest.main()
