// Package alert has the types of alerts: what an alert is, which state it is in, and which silences apply to it. Packages below it decide
// when one fires: rule compiles rules, state is the state machine of one alert, recent counts what happened in windows of time, engine
// evaluates all rules for all objects, and manager runs an engine. Package notify delivers alerts.
package alert
