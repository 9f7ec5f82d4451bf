package diff

// logged are the differences in the logs of containers.
var logged = []Difference{
	{
		Rule:    "LOG-14",
		Kubelet: "answers 200 and appends an error to the log when the container is gone or its log cannot be read",
		Herald:  "opens the log first, and answers 400 with the reason if it is gone; an error after the first byte aborts the connection",
		Why:     "a client can tell an error from a log, and a part of a log from all of it",
		Shown:   "containerlog/TestLOG14_Gone",
	},
	{
		Rule:    "LOG-15",
		Kubelet: "serves the logs of containers that the runtime still has",
		Herald:  "serves them as long as the files are there",
		Why:     "the log of a container that was collected, or of a runtime that does not answer, can be read",
		Shown:   "containerlog/TestLOG15_FileCounts",
	},
	{
		Rule:    "LOG-22",
		Kubelet: "decides by the last entry of any stream whether a line begins",
		Herald:  "decides by the last entry of the same stream",
		Why:     "each line has its time, also if stdout and stderr write parts of lines at once",
		Shown:   "TestLOG22_TimesOfParts",
	},
	{
		Rule:    "LOG-24",
		Kubelet: "counts the parts of a long line, and entries that it cannot parse, as lines of --tail",
		Herald:  "counts whole lines",
		Why:     "--tail prints as many lines as it was asked for, and no line without its beginning",
		Shown:   "TestLOG24_TailOfParts",
	},
	{
		Rule:    "LOG-27",
		Kubelet: "reads the current file only, so that --tail and --since print little after a rotation",
		Herald:  "continues into rotated files, also compressed ones",
		Why:     "the last lines are there whenever they are asked for",
		Shown:   "TestLOG27_RotatedLogs",
	},
	{
		Rule:    "LOG-28",
		Kubelet: "asks the runtime once a second for each follower, and needs an inotify instance for each",
		Herald:  "learns of the end from its own state; all followers share one inotify instance",
		Why:     "a thousand followers cost no calls and do not exhaust the node's inotify instances",
		Shown:   "containerlog/TestLOG30_OneInstance",
	},
	{
		Rule:    "LOG-29",
		Kubelet: "may lose lines that are written to the old file after the new one was created",
		Herald:  "reads the old file until it is quiet, and every file of several rotations",
		Why:     "following over a rotation loses and repeats nothing",
		Shown:   "containerlog/TestLOG29_SeveralRotations",
	},
	{
		Rule:    "LOG-30",
		Kubelet: "follows links, so that a pod that mounts /var/log can have any file of the host read",
		Herald:  "opens regular files without links below the log directory only",
		Why:     "who may read logs may not read the host's files",
		Shown:   "containerlog/TestLOG30_PlantedFiles",
	},
}
