package shim

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"syscall"
)

const openPath = 0x200000 // O_PATH

// kept is a path that is opened before it is hidden.
type kept struct {
	path   string
	fd     int
	folder bool
	view   bool // not to be changed
}

// hide puts an empty file system over the folders of Hide, and in it what is
// kept. It is for a mount namespace of its own, in which no folder of Hide is
// open and none is the working folder; who starts the program enters its
// folder by path, and so the one that is visible. After an error the namespace
// is good for nothing.
func (o *Order) hide() error {
	keep, err := o.open()
	defer func() {
		for _, k := range keep {
			_ = syscall.Close(k.fd)
		}
	}()
	if err != nil {
		return err
	}
	const flags = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC
	for _, dir := range o.Hide {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, "mode=0755,size=64k"); err != nil {
			return errors.New("hide " + dir + ": " + err.Error())
		}
	}
	for _, k := range keep {
		if err := k.putBack(o.Hide); err != nil {
			return errors.New("keep " + k.path + ": " + err.Error())
		}
	}
	for _, dir := range o.Hide {
		if err := readOnly(dir); err != nil {
			return errors.New("hide " + dir + ": make it read-only: " + err.Error())
		}
	}
	if err := o.ownShm(); err != nil {
		return errors.New("make a /dev/shm of its own: " + err.Error())
	}
	return hideDisks()
}

// ownShm puts an empty /dev/shm in the place of the machine's, which landlock
// would leave to all programs at once, unless something is kept below it.
func (o *Order) ownShm() error {
	const shm = "/dev/shm"
	if o.Rules == nil || !o.Rules.Files {
		return nil
	}
	for _, path := range slices.Concat([]string{o.Dir, o.Path}, o.Hide, o.Keep, o.View, o.Rules.Read, o.Rules.Write) {
		if len(path) > len(shm) && path[:len(shm)+1] == shm+"/" {
			return nil
		}
	}
	err := syscall.Mount("tmpfs", shm, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=1777")
	if err == syscall.ENOENT {
		return nil
	}
	return err
}

// open opens what is kept. A path is as the host has resolved it: a link in
// the place of its last name is refused.
func (o *Order) open() (keep []kept, err error) {
	for i, path := range append(o.Keep[:len(o.Keep):len(o.Keep)], o.View...) {
		fd, err := syscall.Open(path, openPath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
		if err != nil {
			return keep, errors.New("keep " + path + ": " + err.Error())
		}
		k := kept{path: path, fd: fd, view: i >= len(o.Keep)}
		keep = append(keep, k)
		var info syscall.Stat_t
		if err := syscall.Fstat(fd, &info); err != nil {
			return keep, errors.New("keep " + path + ": " + err.Error())
		}
		switch info.Mode & syscall.S_IFMT {
		case syscall.S_IFDIR:
			keep[i].folder = true
		case syscall.S_IFLNK:
			return keep, errors.New("keep " + path + ": it is a link")
		}
	}
	return keep, nil
}

// putBack makes the path anew below the hidden folder and binds what is open
// to it.
func (k *kept) putBack(hidden []string) error {
	for _, dir := range hidden {
		if len(k.path) <= len(dir) || k.path[:len(dir)] != dir || k.path[len(dir)] != '/' {
			continue
		}
		for i := len(dir) + 1; i < len(k.path); i++ {
			if k.path[i] == '/' {
				if err := makeFolder(k.path[:i]); err != nil {
					return err
				}
			}
		}
	}
	if k.folder {
		if err := makeFolder(k.path); err != nil {
			return err
		}
	} else {
		fd, err := syscall.Open(k.path, syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, 0o444)
		if err != nil {
			return err
		}
		_ = syscall.Close(fd)
	}
	opened := "/proc/self/fd/" + strconv.Itoa(k.fd)
	if err := syscall.Mount(opened, k.path, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return err
	}
	if k.view {
		return readOnly(k.path)
	}
	return nil
}

// makeFolder makes a folder that all may look into, whatever the umask, unless
// there is one.
func makeFolder(path string) error {
	err := syscall.Mkdir(path, 0o755)
	if err == syscall.EEXIST {
		return nil
	}
	if err != nil {
		return err
	}
	return syscall.Chmod(path, 0o755)
}

// readOnly makes a mount read-only. Its other flags have to be repeated: in a
// user namespace none of them may be given up.
func readOnly(path string) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return err
	}
	// These have the same numbers in both calls, relatime alone excepted.
	const same = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC | syscall.MS_NOATIME | syscall.MS_NODIRATIME
	const relatime = 0x1000
	flags := uintptr(fs.Flags) & same
	if fs.Flags&relatime != 0 {
		flags |= syscall.MS_RELATIME
	}
	return syscall.Mount("", path, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY|flags, "")
}

// hideDisks puts /dev/null in the place of every disk: who may read them, root
// above all, could read off them what is hidden.
func hideDisks() error {
	for _, dir := range []string{"/dev", "/dev/mapper"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // not every machine has both
		}
		for _, e := range entries {
			if e.Type()&os.ModeDevice == 0 || e.Type()&os.ModeCharDevice != 0 {
				continue
			}
			path := dir + "/" + e.Name()
			if err := syscall.Mount("/dev/null", path, "", syscall.MS_BIND, ""); err != nil && err != syscall.ENOENT {
				return errors.New("hide " + path + ": " + err.Error())
			}
		}
	}
	return nil
}
