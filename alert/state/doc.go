// Package state is the state machine of one alert: when it is pending, firing, recovering and resolved, and at which instant time alone
// changes that. An Instance is a value; every method returns the next one. It is pure.
//
//	            true, for > 0                  for is over
//	inactive -----------------> pending ------------------------> firing <------------ true again -----------+
//	   |  ^                        | false                        |    |                                      |
//	   |  +------------------------+                              |    +-- false, keep > 0 --> recovering ----+
//	   +------- true, for = 0 ----------------------------------> |                                |
//	   |                                                          | false, keep = 0                | keep is over
//	   +<------ 15 minutes ------- resolved <---------------------+--------------------------------+
//
// Unknown changes no state. It stops the clock that for, keep and the 15 minutes are measured with, until the answer is known again.
//
// An episode lasts from firing to resolved. An alert that fires again within FlapWindow of its own end continues its episode, which then
// recovers for at least FlapWindow, so that an alert that flaps is told a bounded number of times.
package state
