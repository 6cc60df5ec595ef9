package agent

import "github.com/penstock-dev/penstock/core/agent/workspace"

// Workspace is the folder of a rollout; see package workspace.
type Workspace = workspace.Workspace

// WorkspaceOptions are the options of NewWorkspace.
type WorkspaceOptions = workspace.Options

// NewWorkspace makes a workspace, or takes up the one that is there.
func NewWorkspace(o WorkspaceOptions) (*Workspace, error) { return workspace.New(o) }
