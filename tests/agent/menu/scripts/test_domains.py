from itertools import product

import pytest

from agent.menu.scripts.domains import domain_of
from agent.menu.scripts.option import Option, given_by, role_of
from autoresearch.domains.choices import Choices, OrderedChoices
from autoresearch.domains.ranges import RealRange, WholeRange
from autoresearch.values import Scalar


def option(name: str, default: Scalar | None, **more: object) -> Option:
    return Option(name, default, f"--{name}={{{name}}}", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "default", "domain"),
    [
        ("learning_rate", 6e-4, RealRange(low=6e-5, high=6e-3, scale="log")),
        ("EMBEDDING_LR", 0.6, RealRange(low=0.06, high=6.0, scale="log")),
        ("FINAL_LR_FRAC", 0.0, RealRange(low=0.0, high=1.0)),
        ("weight_decay", 0.1, RealRange(low=0.0, high=0.5)),
        ("weight_decay", 1e-4, RealRange(low=1e-5, high=1e-3, scale="log")),
        ("dropout", 0.2, RealRange(low=0.0, high=0.5)),
        ("beta1", 0.9, RealRange(low=0.5, high=0.99)),
        ("ema_decay", 0.9998, RealRange(low=0.998, high=0.99998)),
        ("warmup_lr", 1e-5, RealRange(low=1e-6, high=1e-4, scale="log")),
        ("adam_beta2", 0.999, RealRange(low=0.99, high=0.9999)),
        ("momentum", 0.9, RealRange(low=0.5, high=0.99)),
        ("grad_clip", 1.0, RealRange(low=0.1, high=10.0, scale="log")),
        ("grad_clip", 0.0, RealRange(low=0.0, high=5.0)),
        ("adam_eps", 1e-8, RealRange(low=1e-10, high=1e-6, scale="log")),
        ("warmup_iters", 100, WholeRange(low=0, high=200)),
        ("n_layer", 12, WholeRange(low=6, high=24)),
        ("depth", 1, WholeRange(low=1, high=4)),
        ("n_head", 12, OrderedChoices(type="int", choices=(3, 6, 12, 24, 48))),
        ("n_embd", 768, OrderedChoices(type="int", choices=(192, 384, 768, 1536, 3072))),
        ("batch_size", 100, OrderedChoices(type="int", choices=(25, 50, 100, 200, 400))),
        ("batch_size", 1, OrderedChoices(type="int", choices=(1, 2, 4))),
        (
            "TOTAL_BATCH_SIZE",
            2**19,
            OrderedChoices(type="int", choices=tuple(2**n for n in range(17, 22))),
        ),
        ("WINDOW_PATTERN", "SSSL", Choices(choices=("SSSL", "SSL", "SL", "L"))),
        ("bias", False, Choices(choices=(True, False))),
    ],
)
def test_a_domain_by_name_and_default(name: str, default: Scalar, domain: object) -> None:
    found = domain_of(option(name, default))
    assert found == domain
    assert not isinstance(found, str)
    assert found.problem() is None
    assert found.contains(default)


WHOLE = "batch_size n_layer n_head d_model topk warmup".split()
REAL = "lr wd dropout beta warmup clip eps ratio x".split()
FRACTIONS = {
    "subsample": 0.5,
    "max_features": 1.0,
    "colsample_bytree": 0.8,
    "dropout": 0.6,
    "momentum": 0.3,
    "beta1": 0.2,
}


def test_every_positive_number_has_a_domain_that_holds_it() -> None:
    for name, default in (
        *product(WHOLE, (1, 2, 3, 5, 7, 8, 12, 13, 100, 2**20, 10**6)),
        *product(REAL, (1e-12, 1e-5, 0.01, 0.3, 0.5, 0.999, 1.0, 1.5, 20.0, 1e9)),
        *FRACTIONS.items(),
    ):
        found = domain_of(option(name, default))
        assert not isinstance(found, str), (name, default)
        assert found.problem() is None, (name, default)
        assert found.contains(default), (name, default)
        if FRACTIONS.get(name) == default:
            assert 0 <= min(found.ends) < max(found.ends) <= 1


def test_a_value_without_a_scale_has_a_clause_instead_of_a_domain() -> None:
    for name, default in (("x", 0), ("x", -1), ("x", -0.5), ("s", "a"), ("n", None)):
        assert isinstance(domain_of(option(name, default)), str)


def test_the_script_s_own_bounds_and_choices_hold() -> None:
    assert domain_of(option("depth", 6, low=4, high=8)) == WholeRange(low=4, high=8)
    assert domain_of(option("lr", 0.5, high=1.0)) == RealRange(low=0.05, high=1.0, scale="log")
    assert domain_of(option("opt", "sgd", choices=("adam", "sgd"))) == Choices(
        choices=("adam", "sgd")
    )
    assert domain_of(option("width", 64, choices=(64, 96))) == OrderedChoices(choices=(64, 96))
    assert isinstance(domain_of(option("opt", "lion", choices=("adam", "sgd"))), str)


@pytest.mark.parametrize(
    ("name", "default", "domain"),
    [
        ("eta", 1, RealRange(low=0.1, high=10.0, scale="log")),
        ("LR", 1, RealRange(low=0.1, high=10.0, scale="log")),
        ("subsample", 1, RealRange(low=0.25, high=1.0)),
        ("feature_fraction", 0.9, RealRange(low=0.225, high=1.0)),
        ("REG_LAMBDA", 1.0, RealRange(low=0.1, high=10.0, scale="log")),
        ("lambda", 1, RealRange(low=0.1, high=10.0, scale="log")),
        ("gae_lambda", 0.95, RealRange(low=0.5, high=0.995)),
        ("start_epsilon", 1.0, RealRange(low=0.1, high=1.0, scale="log")),
        ("lmbda", 0.95, RealRange(low=0.5, high=0.995)),
        ("alpha", 1.0, RealRange(low=0.1, high=10.0, scale="log")),
        ("drop_path", 0.1, RealRange(low=0.0, high=0.5)),
        ("TEMPERATURE", 1, RealRange(low=0.1, high=10.0, scale="log")),
        ("CLIP", 1, RealRange(low=0.1, high=10.0, scale="log")),
        (
            "sample_rate",
            16000,
            OrderedChoices(type="int", choices=(4000, 8000, 16000, 32000, 64000)),
        ),
        ("max_depth", 1, WholeRange(low=1, high=4)),
        ("num_leaves", 2, WholeRange(low=2, high=4)),
    ],
)
def test_what_a_name_means_counts_more_than_how_its_default_is_written(
    name: str, default: Scalar, domain: object
) -> None:
    assert domain_of(option(name, default)) == domain


def test_a_whole_number_that_the_script_declares_stays_one() -> None:
    assert domain_of(option("eta", 1, kind="int")) == WholeRange(low=1, high=4)


ROLES = {
    "knob": "lora_rank log_std_init log_lr load_balance_loss backend_steps drop_path class_weight "
    "target_update_interval data_aug label_smoothing n_steps "
    "learning_rate warmup_steps max_grad_norm gradient_accumulation_steps hidden_size "
    "target_network_frequency num_mini_batches min_samples_split",
    "length": "epochs total_timesteps lr_decay_iters NUM_BATCHES duration",
    "evaluation": "VALIDATE_EVERY target_size block_size vocab_size test_batch_size eval_iters "
    "dataset nfold input_size image_shape_0 D_in prior_variance",
    "machine": "cpu compile",
    "irrelevant": "sample_only GENERATE_EVERY core_metric_every overfit_single_batch pin_mem "
    "wandb_log H100_BF16_PEAK_FLOPS log_interval num_workers evaluate ngpu sampling_interval "
    "chkpt_intv",
}


@pytest.mark.parametrize(
    ("name", "role"), [(name, role) for role, names in ROLES.items() for name in names.split()]
)
def test_a_role_by_name(name: str, role: str) -> None:
    assert role_of(option(name, 1)) == role


def test_a_rank_is_a_process_s_or_a_matrix_s() -> None:
    assert role_of(option("rank", 0)) == "irrelevant"
    assert role_of(option("rank", 8)) == "knob"


def test_a_switch_whose_help_mentions_validation_is_no_knob() -> None:
    doc = "Validate during training pass."
    assert role_of(option("fastmode", False, doc=doc)) == "evaluation"
    assert role_of(option("patience", 3, doc=doc)) == "knob"
    assert role_of(option("fastmode", False, doc="Train faster.")) == "knob"


@pytest.mark.parametrize(
    ("name", "default", "given"),
    [
        ("seed", 1337, "{seed}"),
        ("random_state", 42, "{seed}"),
        ("out_dir", "out", "{out}"),
        ("output-dir", None, "{out}"),
        ("save", "model.pt", "{out}/model.pt"),
        ("save", "some/model.pt", "{out}/model.pt"),
        ("out", "metrics.json", "{out}/metrics.json"),
        ("data_seed", 4, ""),
        ("n_steps", 128, ""),
        ("device", "cuda", "{device}"),
        ("max_iters", 600000, "{steps}"),
        ("lr_decay_iters", 600000, "{horizon}"),
        ("num_threads", 4, "{threads}"),
        ("nthread", 4, "{threads}"),
        ("time_budget", 300, "{seconds}"),
        ("MAX_WALLCLOCK_SECONDS", 600.0, "{seconds}"),
        ("seed", 1.0, ""),
        ("save_interval", 100, ""),
        ("checkpoint", "", ""),
        ("seed", "x", ""),
        ("use_seed", True, ""),
        ("lr", 0.1, ""),
        ("data_dir", "data", ""),
    ],
)
def test_what_the_machinery_gives(name: str, default: Scalar | None, given: str) -> None:
    assert given_by(option(name, default)) == given


def test_help_that_says_probability_ends_at_one_and_two_samples_at_least_are_split() -> None:
    doc = "Horizontal flip training aug probability"
    assert domain_of(option("hflip", 0.4, doc=doc)) == RealRange(low=0.0, high=0.5)
    assert domain_of(option("min_samples_split", 2)) == WholeRange(low=2, high=4)
