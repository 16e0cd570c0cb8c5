"""What a misspelt name is told."""

from engram.errors import nearest


def test_a_close_name_is_offered_alone() -> None:
    assert nearest("protonet", ["egnn", "proto_net"]) == "; did you mean 'proto_net'?"


def test_few_names_are_listed_and_many_are_counted() -> None:
    assert nearest("zzz", ["b", "a"]) == "; known: a, b"
    assert nearest("zzz", [f"name{n}" for n in range(8)]).endswith(", name6, name7")
    many = nearest("zzz", [f"name{n:02d}" for n in range(73)])
    assert many == "; known: name00, name01, name02, name03, name04, name05, name06, name07 and 65 more"
