/** Puts a key at the end of a map. Where that has more than `max` then, it forgets the first one, which is returned. */
export function keepNewest<K, V>(map: Map<K, V>, key: K, value: V, max: number): K | undefined {
  map.delete(key)
  map.set(key, value)
  if (map.size <= max) return undefined
  const [first] = map.keys()
  map.delete(first)
  return first
}
