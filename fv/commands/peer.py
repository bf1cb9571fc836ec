"""`fv peer add NAME`: a free address, fresh keys, the peer in the configuration, its own file and QR code: one step."""

import ipaddress
import pathlib
import re

import click
import segno

from fv import wgquick
from fv.config import values
from fv.config.check import check
from fv.config.edit import NewPeer, add_peer
from fv.config.load import decode, load
from fv.config.model import WireGuardEndpoint
from fv.config.syntax import parse
from fv.errors import FvError, Where
from fv.files import write_atomically
from fv.host import gather
from fv.keys import generate_private, generate_psk, parse_key, public_of, show_key
from fv.plan.facts import Facts
from fv.plan.mtu import mtus, route_to


@click.group()
def command() -> None:
    """Add peers to a configuration."""


@command.command("add")
@click.argument("name")
@click.option("-c", "--config", "file", default="/etc/fv/edge.toml", show_default=True, help="The configuration.")
@click.option("--tag", default="", help="The endpoint, where there are several.")
@click.option("--endpoint", default="", help="How the peer reaches this host: HOST or HOST:PORT.")
@click.option("--allowed-ips", default="0.0.0.0/0, ::/0", show_default=True, help="What the peer sends through here.")
@click.option("--dns", default="", help="Name servers for the peer, separated by commas.")
@click.option("--keepalive", default=25, show_default=True, help="Seconds; 0: none.")
@click.option("--psk/--no-psk", default=True, help="A preshared key as well.")
@click.option("--qr/--no-qr", default=True, help="Show the QR code for the phone's WireGuard.")
def add(
    name: str, file: str, tag: str, endpoint: str, allowed_ips: str, dns: str, keepalive: int, psk: bool, qr: bool
) -> None:
    """Add the peer NAME: prints its wg-quick file and QR code."""
    if not re.fullmatch(r"[^\x00-\x1f\x7f]{1,64}", name):
        raise FvError("a peer's name is 1 to 64 characters on one line")
    loaded = load(file)
    document = loaded.document
    index = _chosen(loaded.config.endpoints, tag, file)
    own = loaded.config.endpoints[index]
    if re.search(rf"^\s*(#|//) {re.escape(name)}\s*$", document.text, re.MULTILINE):
        raise FvError(f"there is a peer {name!r} already", where=Where(file), hint="choose another name")
    if not own.listen_port:
        raise FvError("peers cannot reach an endpoint without listen_port", where=document.where(("endpoints", index)),
                      hint="set listen_port = 51820")  # fmt: skip
    addresses = next_addresses(own)
    if not addresses:
        raise FvError("no free address is left in the endpoint's networks",
                      where=document.where(("endpoints", index, "address")),
                      hint="give the endpoint a network, such as 10.7.0.1/24 and fd07::1/64")  # fmt: skip
    facts = gather(loaded.config)
    private, secret = generate_private(), generate_psk() if psk else b""
    preshared = show_key(secret) if secret else ""
    server = wgquick.Peer(
        show_key(public_of(parse_key(own.private_key))),
        preshared,
        tuple(str(values.prefix(text)) for text in re.split(r"[,\s]+", allowed_ips.strip())),
        *_reached(endpoint, own, facts),
        keepalive,
    )
    servers = tuple(str(values.address(text)) for text in re.split(r"[,\s]+", dns.strip()) if text)
    peer = NewPeer(name, show_key(public_of(private)), preshared, tuple(str(one.network) for one in addresses))
    text = add_peer(document, index, peer)
    check(decode(parse(text, file)))
    mtu = mtus(loaded.config.endpoints, facts)[own.tag].value
    client = wgquick.client_text(
        show_key(private), tuple(map(str, addresses)), server, dns=servers, mtu=mtu if mtu < 1420 else 0
    )
    try:
        write_atomically(pathlib.Path(file), text)
    except OSError as error:
        raise FvError(f"cannot be written: {error.strerror}", where=Where(file)) from None
    click.echo(client, nl=False)
    if qr:
        click.echo()
        segno.make(client, error="l", micro=False).terminal(compact=True)
    click.echo(f"added to {file}; put it in force with: fv reload {file}", err=True)


def _chosen(endpoints: tuple[WireGuardEndpoint, ...], tag: str, file: str) -> int:
    tags = [endpoint.tag for endpoint in endpoints]
    if tag:
        if tag not in tags:
            raise FvError(f"there is no endpoint {tag!r}", where=Where(file), hint="known here: " + ", ".join(tags))
        return tags.index(tag)
    listening = [index for index, endpoint in enumerate(endpoints) if endpoint.listen_port]
    if len(endpoints) == 1:
        return 0
    if len(listening) == 1:
        return listening[0]
    raise FvError("several endpoints could be meant", where=Where(file), hint="say which by --tag: " + ", ".join(tags))


def next_addresses(own: WireGuardEndpoint) -> list[values.Interface]:
    """The lowest free address of each family, as a network of one: neither the endpoint's own nor in any peer's."""
    interfaces = [values.interface(text) for text in own.address]
    taken = [values.prefix(text) for peer in own.peers for text in peer.allowed_ips]
    out: list[values.Interface] = []
    for version in (4, 6):
        for interface in interfaces:
            if interface.version != version:
                continue
            free = _free(interface, [one.ip for one in interfaces], taken)
            if free is not None:
                out.append(ipaddress.ip_interface(f"{free}/{free.max_prefixlen}"))
                break
    return out


def _free(interface: values.Interface, own: list[values.Address], taken: list[values.Network]) -> values.Address | None:
    network = interface.network
    inside = [net for net in taken if net.version == network.version and net.prefixlen > network.prefixlen]
    count = network.num_addresses
    # The first is the network's (v4) or the anycast address (v6), the last of an IPv4 network is its broadcast.
    last = count - 1 if network.version == 4 and network.prefixlen < 31 else count
    place = 1 if count > 2 else 0
    while place < last:
        candidate = network[place]
        covering = next((net for net in inside if candidate in net), None)
        if covering is not None:
            place = int(covering[-1]) - int(network[0]) + 1
        elif candidate in own:
            place += 1
        else:
            return candidate
    return None


def _reached(endpoint: str, own: WireGuardEndpoint, facts: Facts) -> tuple[str, int]:
    """Host and port under which peers reach this endpoint: as told, or this host's address toward the world."""
    if endpoint:
        host, colon, port = endpoint.rpartition(":")
        bare = not colon or (":" in host and not host.endswith("]"))
        try:
            return (values.host(endpoint), own.listen_port) if bare else (values.host(host), int(port))
        except ValueError as error:
            raise FvError(f"--endpoint is not understood; right would be {error}") from None
    route = route_to("", facts)
    link = facts.link(route.dev) if route else None
    for text in link.addresses if link else ():
        address = values.interface(text).ip
        if not address.is_link_local:
            if address.is_private:
                click.echo(f"warning: {address} is a private address; give --endpoint with the one peers see", err=True)
            return str(address), own.listen_port
    raise FvError("this host has no address toward the world", hint="give --endpoint HOST:PORT")
