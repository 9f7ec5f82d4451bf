package alert

import "time"

// Delivery says whether a receiver knows the present state of an alert.
type Delivery struct {
	Receiver string
	State    DeliveryState
	// Problem is why the last attempt failed, NextTry when the next one is made.
	Problem string
	NextTry time.Time
}

// DeliveryState is the state of a Delivery.
type DeliveryState string

// States of deliveries. A receiver that is not to be told of an alert has none.
const (
	Delivered DeliveryState = "delivered"
	Waiting   DeliveryState = "waiting"
	Failing   DeliveryState = "failing" // the last attempt failed
)
