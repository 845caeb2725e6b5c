package registry

// Cache returns what the cache between the keeper and the truth did so far; false
// where there is none.
func (k *Keeper) Cache() (CacheStats, bool) {
	c, ok := k.source.(*Cached)
	if !ok {
		return CacheStats{}, false
	}
	return c.Stats(), true
}
