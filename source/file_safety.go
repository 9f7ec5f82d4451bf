package source

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// owner is who something belongs to, and who may write to it.
type owner struct {
	uid, gid uint32
	mode     uint32 // permission bits
}

func ownerOf(stat *unix.Stat_t) owner {
	return owner{uid: stat.Uid, gid: stat.Gid, mode: modeOf(stat) & 0o7777}
}

const (
	groupWrite = 0o020
	otherWrite = 0o002
)

// refuse says why what is at path must not be obeyed, or nothing. Whoever can write a manifest is root on this node, so
// it and its folder must be root's or the agent's own, and nobody else may write there. A group may only when it is
// root's or the agent's own. The path is for the remedy; whoever wraps the error names it as the subject.
func (agent owner) refuse(path string, found owner) error {
	switch {
	case found.uid != 0 && found.uid != agent.uid:
		return fmt.Errorf("belongs to user %d, who could start any pod with it, and not to root or to user %d, whom the "+
			"agent runs as (chown %d %s)", found.uid, agent.uid, agent.uid, path)
	case found.mode&otherWrite != 0:
		return fmt.Errorf("has mode %04o, so everybody could start any pod with it (chmod o-w %s)", found.mode, path)
	case found.mode&groupWrite != 0 && found.gid != 0 && found.gid != agent.gid:
		return fmt.Errorf("has mode %04o, so everybody in group %d could start any pod with it (chmod g-w %s)",
			found.mode, found.gid, path)
	default:
		return nil
	}
}
