/** Puts a key at the end of a map. Where that has more than `most` then, it forgets the first one, which is returned. */
export function keepNewest<K, V>(map: Map<K, V>, key: K, value: V, most: number): K | undefined {
  map.delete(key)
  map.set(key, value)
  if (map.size <= most) return undefined
  const [first] = map.keys()
  map.delete(first)
  return first
}
