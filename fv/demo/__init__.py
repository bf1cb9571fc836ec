"""The demo LAN: four network namespaces, two engines, a client, a web server; all made at start, all gone at the end.

    fvdemo-client ── fvdemo-gw ══════════════ fvdemo-exit ── fvdemo-web
    the LAN's host   fvd: source NAT,         fvd: the       a web server that knows
    192.168.88.2     kill switch              other end      no way back to the LAN

`net.py` makes the namespaces, `roles.py` is what runs inside one, `show.py` draws, `run.py` holds it together.
"""
