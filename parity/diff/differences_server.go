package diff

// served are the differences in who may use the node's server.
var served = []Difference{
	{
		Rule:    "SRV-13",
		Kubelet: "without an API server, accepts client certificates only and allows everything to everybody or nothing to anybody",
		Herald:  "accepts the tokens of a file, too, and allows what rules in its configuration allow",
		Why:     "a machine without cluster can be scraped and inspected from elsewhere",
		Shown:   "auth/TestSRV13_StandAlone",
	},
	{
		Rule:    "SRV-23",
		Kubelet: "lets users with get on nodes/proxy run commands in containers, by a web socket, which is a GET",
		Herald:  "needs create for exec, attach, run and portForward, whatever the method",
		Why:     "a permission to read is not a permission to run code",
		Shown:   "TestSRV23_RunningCodeIsCreate",
	},
	{
		Rule:    "SRV-24",
		Kubelet: "answers unknown paths and redirects without authentication",
		Herald:  "authenticates every request first",
		Why:     "strangers learn nothing",
		Shown:   "parity/nodeserver/TestSRV24_KubeletEveryIdentity",
	},
	{
		Rule:    "SRV-47",
		Kubelet: "goes on asking the API server about a token when the client has left, about as many tokens at once as clients send",
		Herald:  "stops, and asks about 16 at once",
		Why:     "strangers with invalid tokens cannot make the node flood its API server",
		Shown:   "auth/TestSRV47_Flood",
	},
}
