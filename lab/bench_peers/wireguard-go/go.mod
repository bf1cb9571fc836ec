module bench-wireguard-go

go 1.23.1

require (
	golang.org/x/crypto v0.37.0
	golang.org/x/sys v0.32.0
	golang.zx2c4.com/wireguard v0.0.0-20260522210424-ecfc5a8d5446
)
