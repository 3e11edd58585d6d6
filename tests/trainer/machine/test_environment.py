"""A trial's environment has device settings, and no secret that is named like one."""

import pytest

from trainer.machine.environment import allowed_environment

SETTINGS = {
    "CUDA_VISIBLE_DEVICES": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,MIG-8932f937-d72c-4106",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "CUDA_CACHE_PATH": "/home/a/cuda_cache_2025",
    "CUDA_VERSION": "12.6.3.004",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
    "TORCH_CUDA_ARCH_LIST": "8.0;8.6;9.0+PTX",
    "TORCH_LOGS": "+dynamo,inductor",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    "NVIDIA_REQUIRE_CUDA": "cuda>=12.6 brand=unknown,driver>=470,driver<471",
    "KMP_AFFINITY": "verbose,granularity=fine,proclist=[0,1,2],explicit",
    "OMP_NUM_THREADS": "16",
    "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    "OPENBLAS_CORETYPE": "SkylakeX",
}
SECRETS = {
    "CUDA_API": "hunter2",
    "TORCH_HUB": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "TORCH_SESSION": "sk-proj-1a2b3c4d5e6f7g8h",
    "NVIDIA_NGC": "nvapi-0123456789abcdefABCDEF",
    "PYTORCH_LOGIN": "Aa1Bb2Cc3Dd4Ee5F",
    "MKL_JSON": '{"id":"9f86d081884c7d659a2feaa0c55ad015"}',
    "NVIDIA_URL": "https://user:pw@host/",
}


def test_device_settings_reach_a_trial() -> None:
    given = allowed_environment(SETTINGS)
    assert {name: given.get(name) for name in SETTINGS} == SETTINGS


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_named_like_a_device_setting_does_not(name: str) -> None:
    given = allowed_environment({name: SECRETS[name]})
    assert name not in given
    assert SECRETS[name] not in given.values()
