package driver

var expose func(Device) (any, error)

// SetExpose is called by package device, with the function behind Expose.
func SetExpose(f func(Device) (any, error)) { expose = f }

// Expose returns a driver's device in the form that programs use, which is
// D = *device.Device. It is for tests and benchmarks that bring a device of
// their own. The caller closes drv.
func Expose[D any](drv Device) (D, error) {
	d, err := expose(drv)
	exposed, _ := d.(D)
	return exposed, err
}
