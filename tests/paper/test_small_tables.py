"""UCI sets with published splits, and CO2: on small files of exactly their formats; the errors."""

import numpy as np
import pytest
from data_files import CO2_FILE, UCI_SPLITS, check_rows, offline, rows_of, write

from dvip.data import DataError, MissingDataError, load_split

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.mark.parametrize("number", UCI_SPLITS)
def test_published_splits(energy, folder, number):
    train, test = UCI_SPLITS[number]
    check_rows(load_split("energy", number, folder), energy[1], train, test)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("data.txt", "1 2 3\n4 5\n", "data.txt cannot be read, it may be damaged"),
        ("data.txt", "1 2 x\n", "data.txt cannot be read, it may be damaged"),
        ("data.txt", "", "data.txt is empty"),
        ("data.txt", rows_of(np.ones((3, 10)), " "), "row 5, but data.txt beside it has 3 rows"),
        ("index_features.txt", rows_of([[k] for k in range(7)]), "have 7 columns, expected are 8"),
        ("index_features.txt", "0\n11\n", "names column 11, but data.txt beside it has 10 columns"),
        ("index_target.txt", "8\n9\n", "names 2 columns, expected is 1"),
        ("index_train_0.txt", "0\n1\n2\n", "Training and test rows overlap in split 0"),
        ("index_train_0.txt", "0.5\n", "must hold one whole number a line"),
        ("index_train_0.txt", "-1\n", "names row -1"),
    ],
)
def test_damaged_uci_files(energy, folder, file, content, message):
    write(energy[0] / file, content)
    with pytest.raises(DataError if "damaged" not in message else ValueError, match=message):
        load_split("energy", 0, folder)


def test_missing_index_file(energy, folder):
    (energy[0] / "index_test_0.txt").unlink()
    with pytest.raises(
        MissingDataError, match=r"energy: uci/energy/data/index_test_0\.txt is not in"
    ):
        offline("energy").load(0, folder)


# CO2.

MONTHS = [
    (1958 + k // 12, k % 12 + 1, 21200 + 30 * k, round(1958.0411 + k / 12, 4), 315 + k, 1, 1, 1)
    for k in range(22)
]
MISSING_MONTHS = (0, 7)


def co2_file(style):
    months = [list(month) for month in MONTHS]
    for k in MISSING_MONTHS:
        months[k][4] = -99.99
    if style == "plain":
        return "yr,mn,date_excel,date,co2,sa,fit,sa_fit\n" + rows_of(months)
    comments = '"----"\n" Atmospheric CO2 at Mauna Loa, 19.5°N, since 1958 "\n" "\n'
    header = "  Yr, Mn,    Date,      Date,     CO2,seasonally,  fit, adjusted\n"
    units = "    ,   ,   Excel,          ,   [ppm],     [ppm],     ,\n"
    return comments + header + units + rows_of([*months], ", ").replace("\n", ", MLO\n")


@pytest.mark.parametrize("style", ["plain", "scripps"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_co2_holds_out_the_second_and_fourth_fifth(folder, style, encoding):
    write(folder / CO2_FILE, co2_file(style).encode(encoding))
    months = np.array([month[3:5] for k, month in enumerate(MONTHS) if k not in MISSING_MONTHS])
    train, test = [*range(4), *range(8, 12), *range(16, 20)], [*range(4, 8), *range(12, 16)]
    check_rows(load_split("co2", data=folder), months, train, test)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (co2_file("plain") + "1959,12,21", "Line 24 of .* is not a month"),
        (co2_file("plain") + "1959,12,21900,1970.5,320\n", "date 1970.5 in the year 1959"),
        ("not found\n", "has 0 months with a value"),
        ("", "has 0 months with a value"),
    ],
)
def test_damaged_co2_file(folder, content, message):
    write(folder / CO2_FILE, content)
    with pytest.raises(DataError, match=message):
        load_split("co2", data=folder)
