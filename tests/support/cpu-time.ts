/** CPU time that this process has used. Unlike wall time it does not grow where other processes keep the machine busy. units: ms. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}
