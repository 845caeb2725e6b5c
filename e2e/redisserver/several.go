package redisserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Master is what sentinels call the master that they watch.
const Master = "mymaster"

const sentinelFile = "sentinel.conf"

// StartReplica runs a replica of the master until the test ends, and returns when
// it follows.
func StartReplica(t testing.TB, master *Server, args ...string) *Server {
	t.Helper()
	s := Start(t, append([]string{"--replicaof", "127.0.0.1 " + Port(master.Addr)}, args...)...)
	s.wait("the replica follows", func(c *redis.Client) bool {
		info, err := c.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	return s
}

// StartSentinels runs n sentinels that watch the master until the test ends, and
// returns when they know each other and a replica. Two of them must agree that a
// master which has not answered for half a second is gone. The lines come after
// those in their configuration.
func StartSentinels(t testing.TB, n int, master *Server, lines ...string) []*Server {
	t.Helper()
	list := make([]*Server, n)
	for i := range list {
		s := &Server{Addr: address(t), t: t, dir: t.TempDir()}
		conf := fmt.Sprintf("port %[3]s\nbind 127.0.0.1\ndir %[4]q\nsentinel monitor %[1]s 127.0.0.1 %[2]s 2\n"+
			"sentinel down-after-milliseconds %[1]s 500\nsentinel failover-timeout %[1]s 3000\n", Master, Port(master.Addr), Port(s.Addr), s.dir)
		conf += strings.Join(lines, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(s.dir, sentinelFile), []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(s.Kill)
		list[i] = s
	}
	for _, s := range list {
		s.wait("the sentinels know each other", func(c *redis.Client) bool {
			info, err := c.Info(t.Context(), "sentinel").Result()
			return err == nil && strings.Contains(info, fmt.Sprintf("status=ok,address=%s,slaves=1,sentinels=%d", master.Addr, n))
		})
	}
	return list
}

// StartCluster runs a cluster of n masters that share the slots, until the test
// ends, and returns when it is whole.
func StartCluster(t testing.TB, n int, args ...string) []*Server {
	t.Helper()
	const slots = 16384
	list := make([]*Server, n)
	for i := range list {
		list[i] = Start(t, append([]string{"--cluster-enabled", "yes", "--cluster-port", Port(address(t))}, args...)...)
		list[i].wait("slots are given", func(c *redis.Client) bool {
			return c.ClusterAddSlotsRange(t.Context(), slots*i/n, slots*(i+1)/n-1).Err() == nil
		})
	}
	for _, s := range list[1:] {
		s.wait("nodes meet", func(c *redis.Client) bool {
			bus := list[0].Args[3]
			return c.Do(t.Context(), "CLUSTER", "MEET", "127.0.0.1", Port(list[0].Addr), bus).Err() == nil
		})
	}
	for _, s := range list {
		s.wait("the cluster is whole", func(c *redis.Client) bool {
			info, err := c.ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", n))
		})
	}
	return list
}

// Do runs a command on the server that must succeed.
func (s *Server) Do(args ...any) {
	s.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	if err := client.Do(context.Background(), args...).Err(); err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
}

func (s *Server) wait(what string, ok func(*redis.Client) bool) {
	s.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	for end := time.Now().Add(30 * time.Second); !ok(client); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not within 30 s: %s", what)
		}
	}
}
