package engine

import "slices"

// ends are the commands after which jobs in the background are taken to be over.
var ends = []string{"wait", "kill", "pkill", "killall"}

// mostServers is how many engines that answer the command line has running at
// the same time. A loop counts as two rounds, of the branches of a condition the
// one with the most counts.
func mostServers(commands []simpleCommand) int {
	var s servers
	for _, c := range commands {
		for _, word := range c.words {
			s.word(word)
			if !slices.Contains(reserved, word) {
				break
			}
		}
		s.command(c)
	}
	s.most = max(s.most, s.running)
	return s.most
}

// servers counts while a command line is walked through.
type servers struct {
	// running are those in the background at this point.
	running int
	most    int
	// job is the last one that was counted.
	job int
	// open are the loops and conditions around this point.
	open []block
}

// block is a loop or a condition.
type block struct {
	// before is what ran where it began.
	before int
	// most is what ran at the end of a branch.
	most int
}

// word opens and closes blocks.
func (s *servers) word(word string) {
	switch word {
	case "if", "case", "do":
		s.open = append(s.open, block{before: s.running})
		return
	}
	if len(s.open) == 0 {
		return
	}
	last := &s.open[len(s.open)-1]
	switch word {
	case "elif", "else":
		last.most = max(last.most, s.running)
		s.running = min(s.running, last.before)
	case "fi":
		s.running = max(s.running, last.most)
	case "esac": // what separates its branches is not known here
		s.running = min(s.running, last.before+1)
	case "done":
		s.running += max(s.running-last.before, 0)
	}
	switch word {
	case "fi", "esac", "done":
		s.open = s.open[:len(s.open)-1]
	}
}

func (s *servers) command(c simpleCommand) {
	if words := c.program(); len(words) > 0 && slices.Contains(ends, words[0]) {
		s.most = max(s.most, s.running)
		s.running = 0
		return
	}
	started, ok := c.invocation()
	switch {
	case !ok || started.servesNothing():
	case !c.background:
		s.most = max(s.most, s.running+1)
	case c.job != s.job:
		s.running++
		s.job = c.job
	}
}
