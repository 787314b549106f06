use fetchwise_simulate::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let world = PaceWorld::read(std::path::Path::new(&args[1])).unwrap();
    let players: Vec<&str> = args[2].split(',').collect();
    let seeds: Vec<u64> = args[3].split(',').map(|s| s.parse().unwrap()).collect();
    let t = std::time::Instant::now();
    let reports = simulate_pace(&world, &players, &seeds, &PaceOptions { threads: 2, progress: None }).unwrap();
    print!("{}", pace_table(&reports));
    eprintln!("{:?}", t.elapsed());
}
