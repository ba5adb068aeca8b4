use lavastore_io as io;
use io::sim::*; use io::*;
use std::path::Path; use std::time::Instant;
fn main(){
 // an engine-like run: WAL 256 pages in place, tables, manifest
 let t=Instant::now();
 let sim=SimEnv::new(1); let env=sim.env(); let fs=env.fs.clone();
 fs.create_dir_all(Path::new("/db")).unwrap(); fs.sync_dir(Path::new("/")).unwrap();
 let mut man=fs.create(Path::new("/db/MANIFEST-1"),&CreateOptions::default()).unwrap();
 let log=fs.create_in_place(Path::new("/db/1.log"),1<<20,Access::Direct).unwrap();
 let map=fs.create_mapping(Path::new("/db/STAGING"),256<<10).unwrap();
 fs.sync_dir(Path::new("/db")).unwrap();
 let mut buf=AlignedBuf::zeroed(4096); let mut rng=Rng::new(3);
 for i in 0..2000u64 { rng.fill(buf.as_mut_slice());
   if i%2==0 {log.write_durable(&buf,(i%256)*4096).unwrap();} else {map.write((i as usize*100)%(250<<10),&buf.as_slice()[..600]);}
   if i%40==39 { let p=format!("/db/{i}.ksst"); let mut f=fs.create(Path::new(&p),&CreateOptions::default()).unwrap(); let mut v=vec![0;60000]; rng.fill(&mut v); f.append(&v).unwrap(); f.sync(SyncKind::Full).unwrap(); fs.sync_dir(Path::new("/db")).unwrap(); man.append(&v[..200]).unwrap(); man.sync(SyncKind::Data).unwrap();
     if i>400 { fs.remove(Path::new(&format!("/db/{}.ksst",i-400))).unwrap(); } } }
 println!("run: {:?} {} ops", t.elapsed(), sim.op_count());
 let t=Instant::now(); let rec=sim.record(); println!("record {:?}",t.elapsed());
 let ops=rec.mutations(); let n=20000u64; 
 let t=Instant::now(); let mut rng=Rng::new(9); let mut s=0;
 for i in 0..n { let e=rec.crash_at(ops[rng.below(ops.len() as u64) as usize],CrashKind::PowerLoss,i); s^=e.op_count(); }
 for pol in Policy::ALL { let t=Instant::now(); let mut rng=Rng::new(9); for i in 0..4000 { let e=rec.crash_at(ops[rng.below(ops.len() as u64) as usize],CrashKind::PowerLossWith(pol),i); s^=e.op_count(); } println!("{pol:?} {:?}",t.elapsed()/4000); }
 let t0=Instant::now(); for i in 0..4000 { let e=rec.crash_at(ops[rng.below(ops.len() as u64) as usize],CrashKind::ProcessKill,i); s^=e.op_count(); } println!("kill {:?}",t0.elapsed()/4000);
 println!("crash_at: {:?} each", t.elapsed()/n as u32);
 let t=Instant::now(); let mut rng=Rng::new(9); let mut set=std::collections::BTreeSet::new();
 for i in 0..n { let e=rec.crash_at(ops[rng.below(ops.len() as u64) as usize],CrashKind::PowerLoss,i); set.insert(e.state_hash()); }
 println!("crash_at+hash: {:?} each; distinct {} {s}", t.elapsed()/n as u32, set.len());
}
