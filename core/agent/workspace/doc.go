// Package workspace keeps the folder in which the stages of one rollout work:
// a copy of the user's folder, private homes, snapshots to go back to, copies
// for judgers, and the difference that the agents made.
//
// An agent is free to fill the folder with links, pipes and devices. Nothing
// here follows a link out of the folder, opens what is no regular file, or
// believes a name. Processes never enter; all of them are dead before a
// folder is read.
package workspace
