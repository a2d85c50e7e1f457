/** How many ranks `parallel` needs, in words, where it cannot have `ranks`: `4 ranks`, `a multiple of 2 ranks`. */
export function ranksNeeded(parallel: string, ranks: number): string | undefined {
  const pipelines = pipelinesOf(parallel)
  if (!pipelines) return undefined
  const { stages, replicas } = pipelines
  if (replicas) return stages * replicas === ranks ? undefined : `${stages * replicas} ranks`
  return ranks > 0 && ranks % stages === 0 ? undefined : `a multiple of ${stages} ranks`
}

/** The stages of each pipeline of a run, and how many pipelines: as many as the ranks allow where it is undefined. Undefined without pipelines. */
export function pipelinesOf(parallel: string): { stages: number; replicas?: number } | undefined {
  const [, stages, replicas] = /^pp=([2-9]|[1-9]\d)(?:,dp=([1-9]\d?))?$/.exec(parallel) ?? []
  if (!stages) return undefined
  return { stages: Number(stages), ...(replicas && { replicas: Number(replicas) }) }
}
