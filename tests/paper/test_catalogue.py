"""What is known of the datasets by name, where they are looked for, and `dvip datasets`."""

import json
import re
from pathlib import Path

import pytest
from data_files import CO2_FILE, rows_of, write
from typer.testing import CliRunner

from dvip.__main__ import app
from dvip.data import DATASETS, DataError, data_folders, load_split

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.mark.parametrize(("name", "number"), [("energy", 20), ("protein", 5), ("mnist", -1)])
def test_split_out_of_range(name, number):
    with pytest.raises(DataError, match=f"{name} has no split {number}"):
        load_split(name, number)


def test_unknown_dataset():
    with pytest.raises(DataError, match="no dataset 'enery': known are boston, energy"):
        load_split("enery")


def test_folders_in_order(tmp_path, monkeypatch, empty_cache):
    folders = [tmp_path / "given", tmp_path / "variable", empty_cache]
    monkeypatch.setenv("DVIP_DATA", str(folders[1]))
    folders[0].mkdir()
    assert data_folders(folders[0]) == folders
    assert data_folders() == folders[1:]
    for value, place in reversed(list(enumerate(folders))):
        months = [(year, 1, 1, year, 300 + value) for year in range(1960, 1970)]
        write(place / CO2_FILE, rows_of(months))
        assert load_split("co2", data=folders[0]).targets[0] == 300 + value


def test_folder_that_does_not_exist(tmp_path):
    with pytest.raises(DataError, match=r"There is no folder .*nowhere"):
        load_split("energy", data=tmp_path / "nowhere")


def test_every_dataset_says_what_people_need():
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert dataset.address.startswith("http") or not dataset.parts or not dataset.parts
        assert dataset.licence
        assert len(set(dataset.files)) == len(dataset.files)
        assert not any(Path(path).is_absolute() or ".." in path for path in dataset.files)
        assert set(dataset.found().values()) <= {None}


# The command.


def listed(*arguments, **environment):
    result = CliRunner().invoke(app, ["datasets", *arguments], env=environment)
    assert result.exit_code == 0, result.output
    return result.output


def test_command_lists_everything(energy, folder):
    for number in range(2, 20):
        for part in ("train", "test"):
            write(energy[0] / f"index_{part}_{number}.txt", "0\n")
    write(folder / "mnist/train-images-idx3-ubyte.gz", b"")
    blocks = re.split(r"\n(?=\S)", listed("--data", str(folder)))
    by_name = {block.split(":")[0]: block for block in blocks}
    assert set(by_name) >= set(DATASETS)
    for name, dataset in DATASETS.items():
        for part in (dataset.task, f"{dataset.rows:,} x {dataset.num_inputs}", dataset.licence):
            assert part in by_name[name]
        assert dataset.address in by_name[name]
        assert all(path in by_name[name] for path in dataset.files[:1])
    assert f"there: {energy[0]}" in by_name["energy"]
    assert "not there, to be downloaded when needed" in by_name["boston"]
    assert "3 of 4 files are not there, to be downloaded when needed" in by_name["mnist"]
    assert "not there, to be put there by hand" in by_name["taxi"]
    assert "made when it is needed" in by_name["rectangles-generated"]
    assert str(folder) in blocks[-1]


def test_command_on_a_terminal(folder):
    folder.mkdir()
    lines = listed("--data", str(folder), FORCE_COLOR="1", COLUMNS="80").splitlines()
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert max(map(len, plain)) <= 80
    assert {line.split()[0] for line in plain if line.strip()} >= set(DATASETS)


def test_command_as_json(energy, folder):
    result = json.loads(listed("--json", "--data", str(folder)))
    assert result["folders"][0] == str(folder)
    entries = {entry["name"]: entry for entry in result["datasets"]}
    assert list(entries) == list(DATASETS)
    assert entries["energy"]["files"]["uci/energy/data/data.txt"] == str(energy[0] / "data.txt")
    assert entries["energy"]["files"]["uci/energy/data/index_test_7.txt"] is None
    assert not entries["energy"]["there"]
    assert entries["energy"]["downloads"]
    assert not entries["flights"]["downloads"]
    assert entries["rectangles-generated"]["there"]


def test_command_refuses_a_folder_that_is_not_there(tmp_path):
    result = CliRunner().invoke(app, ["datasets", "--data", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: There is no folder")
