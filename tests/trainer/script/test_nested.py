"""Settings that are no constants of the module: where they are found, and what they are called."""

import ast

from autoresearch.values import Scalar
from trainer.script.editing import edited, settings, unset

SCRIPT = """\
lr = 0.5
params = {}
params["eta"] = 0.1
params["eta_min"] = 0.0
params["eta_min"] = 0.01
labels["cat"] = 7
def main():
    global width
    hidden, best = 32, 0.0
    width = 3
    for epoch in range(3):
        best = max(best, epoch)
        inside = 1
    torch.manual_seed(1)
    x = torch.Generator().manual_seed(2)
    train, test = random_split(data, [8, 2], seed=4)
    train_loader = DataLoader(train, batch_size=128, shuffle=True)
    test_loader = DataLoader(test, batch_size=1000)
    model = Sequential(Dropout(p=0.1), Conv(8, width=3), Conv(8, width=5))
    opt = Adam(model, lr=1e-3, betas=(0.9, 0.99), weight_decay=hidden)
    plt.plot(x, alpha=0.5, linewidth=2)
    criterion = FocalLoss(gamma=2.0)
    sgd, head = SGD(model, lr=-1e-2, momentum=0.9), SGD(model, momentum=0.8, tol=10**400)
if __name__ == "__main__":
    rounds = 5
    main()
"""


def found(source: str) -> dict[str, Scalar]:
    return {name: one.value for name, one in settings(source).items()}


def test_each_is_found_once_and_the_names_of_constants_stay() -> None:
    assert found(SCRIPT) == {
        "lr": 0.5,
        "rounds": 5,
        "eta": 0.1,
        "hidden": 32,
        "torch_manual_seed": 1,
        "batch_size": 128,
        "p": 0.1,
        "Adam_lr": 1e-3,
        "betas_0": 0.9,
        "betas_1": 0.99,
        "SGD_lr": -1e-2,
        "manual_seed": 2,
    }


def test_each_is_set_in_its_place() -> None:
    old = {"eta": "0.1", "hidden": "32", "SGD_lr": "-1e-2", "rounds": "5", "betas_1": "0.99"}
    for name, text in old.items():
        copy = edited(SCRIPT, {name: 7 if "." not in text else 0.7})
        value = found(copy)[name]
        assert value == (7 if "." not in text else 0.7)
        assert {**found(copy), name: None} == {**found(SCRIPT), name: None}
        assert len(copy) - len(SCRIPT) == len(str(value)) - len(text)
        ast.parse(copy)


def test_code_in_a_slot_neither_has_settings_nor_takes_their_names() -> None:
    source = "drop(x, p=0.1)\n# autoresearch: slot act\ny = drop(x, p=0.2)\n# autoresearch: end\n"
    assert found(source) == {"p": 0.1}
    code = "y = drop(x, p=0.3)\nz = keep(y, p=0.4)"
    assert found(edited(source, {"p": 0.6, "code.act": code})) == {"p": 0.6}


PLACED = """\
net = Sequential(Dropout(0.25), Network.SGD(data, 30, 10, 3.0), RMSprop(0.01, 0.9), SGD(*many))
opt = torch.optim.Adam(net.parameters(), 1e-3)
sgd = SGD(net.parameters(), 0.1, lr=0.2)
loader = DataLoader(data, 64)
test_loader = DataLoader(data, 1000)
for step in range(50):
    print(step)
for epoch in range(100):
    for iteration in range(7):
        opt.step()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 2.0)
def main():
    for step in range(500):
        loss.backward()
"""


def test_a_place_names_a_number_and_a_loop_that_trains_names_its_length() -> None:
    assert found(PLACED) == {
        "dropout": 0.25,
        "Adam_lr": 1e-3,
        "SGD_lr": 0.2,
        "batch_size": 64,
        "epochs": 100,
        "max_norm": 2.0,
        "steps": 500,
    }
    copy = edited(PLACED, {"Adam_lr": 0.5, "steps": 60})
    assert copy == PLACED.replace("1e-3", "0.5").replace("500", "60")


LATER = """\
def main(args):
    hyperparameters = {"clip": 0.2, "names": ["a"], 3: 4}
    model = PPO(n_steps=128, gae_lambda=0.95)
    other = PPO(n_steps=256)
rng = np.random.default_rng(7)
torch.manual_seed(8)
torch.manual_seed(9)
train, test = random_split(data, generator=torch.Generator().manual_seed(10))
"""


def test_what_was_found_later_has_names_that_nothing_had() -> None:
    assert found(LATER) == {
        "clip": 0.2,
        "n_steps": 128,
        "PPO_n_steps": 256,
        "gae_lambda": 0.95,
        "np_random_default_rng_seed": 7,
        "torch_manual_seed": 8,
        "torch_manual_seed_2": 9,
    }
    assert unset(LATER) == {}
    assert "128" not in edited(LATER, {"n_steps": 64})


def test_what_cannot_be_set_has_a_reason() -> None:
    source = "LR = 1.0\nLR = LR / 2\na, b = Net(num_leaves=31), Net(num_leaves=7)\n"
    assert unset(source).keys() == {"LR", "num_leaves"}
