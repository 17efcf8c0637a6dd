package copilotide

// Command is the name of the agent's command.
const Command = "copilot"
